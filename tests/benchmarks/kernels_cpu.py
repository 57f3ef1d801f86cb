"""Benchmark `kernels-cpu`: the C kernels against torch's own linear layers, on two threads.

Every round times each contender once, so that a busy machine slows them alike; what is quoted are medians of the
rounds' ratios. Bandwidth is that of reading the packed weights themselves, in the same rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch.nn.functional import linear

from qualgate.errors import UsageError
from qualgate_kernels import cpu
from qualgate_kernels.cpu.library import read
from qualgate_kernels.packed import PackedWeight
from tests.benchmarks.goals import KERNELS_CPU

THREADS = 2
SQUARE = (1024, 2048, 4096)  # K = N of the int4 layers
LARGE = (8192, 16384)  # 64 MiB of int4 codes
COPIES = 4  # rotated, so that no cache holds the weight
MODEL = ((704, 256), (256, 704))  # the shipped reference model's gate and down projection

Contenders = dict[str, Callable[[], object]]


def run(quick: bool) -> dict[str, Any]:
    """All three parts, 15 rounds each (quick: 5, and fewer shapes). About 4 (quick: 1) minutes on idle cores."""
    if not cpu.paths():
        raise UsageError(f"there is nothing to time: {cpu.available()}")
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        count = 5 if quick else 15
        rows = (32, 64, 512) if quick else (32, 64, 128, 256, 512)
        many = [_many_rows(side, m, count) for side in (SQUARE[:2] if quick else SQUARE) for m in rows]
        few = _few_rows((1,) if quick else (1, 2, 4), count)
        model = [_model_layer(shape, m, count) for shape in MODEL for m in (1, 16, 64, 512)]
    finally:
        torch.set_num_threads(before)

    def row(id: str, found: list[list[float]], at_least: float | None, at_most: float | None) -> dict[str, Any]:
        """The worst shape's median, the spread of the worst shape's rounds."""
        worst = (min if at_least is not None else max)(found, key=median)
        middle = median(worst)
        met = middle >= at_least if at_least is not None else at_most is not None and middle <= at_most
        return KERNELS_CPU.row(id, middle, spread=[min(worst), max(worst)], met=met)

    def of(part: list[dict[str, Any]], name: str, **where: Any) -> list[list[float]]:
        return [entry["ratios"][name] for entry in part if all(entry[key] == value for key, value in where.items())]

    return KERNELS_CPU.result(
        rounds=[{"path": cpu.available(), "threads": THREADS, "rounds": count}, *map(_shown, many + few + model)],
        rows=[
            row("int4_rows_32_512", of(many, "torch_int4"), 5.0, None),
            row("int4_rows_64_up", [one for m in rows if m >= 64 for one in of(many, "cost", rows=m)], None, 1.25),
            row("int4_few_rows", of(few, "torch_bf16", format="int4 g128"), 2.5, None),
            row("mxfp4_few_rows", of(few, "torch_bf16", format="mxfp4"), 2.5, None),
            row("int4_bandwidth", of(few, "bandwidth", format="int4 g128"), 0.7, None),
            row("mxfp4_bandwidth", of(few, "bandwidth", format="mxfp4"), 0.7, None),
        ],
    )


def _many_rows(side: int, rows: int, count: int) -> dict[str, Any]:
    """torch_int4: times faster than the eager int4 operator; cost: our time over bf16 linear's."""
    packed = _weight(side, side, "int4")
    prepared, full = cpu.prepare(packed), torch.randn(side, side).bfloat16()
    theirs, scales = _aten_int4(packed)
    x = torch.randn(rows, side).bfloat16()
    seconds = _interleaved(
        {
            "ours": lambda: cpu.matmul(x, prepared, threads=THREADS),
            "torch_bf16": lambda: linear(x, full),
            "torch_int4": lambda: torch.ops.aten._weight_int4pack_mm_for_cpu(x, theirs, 128, scales),
        },
        count,
    )
    ratios = {
        "torch_int4": _ratios(seconds["torch_int4"], seconds["ours"]),
        "cost": _ratios(seconds["ours"], seconds["torch_bf16"]),
    }
    return {"format": packed.format, "shape": [side, side], "rows": rows, "seconds": seconds, "ratios": ratios}


def _few_rows(rows: tuple[int, ...], count: int) -> list[dict[str, Any]]:
    """torch_bf16: times faster than bf16 linear; bandwidth: the packed bytes a second over those of a plain read."""
    found = []
    full = [torch.rand(LARGE, dtype=torch.bfloat16)]
    full += [full[0].clone() for _ in range(COPIES - 1)]
    for kind in ("int4", "mxfp4"):
        packed = _weight(*LARGE, kind)
        copies = [cpu.prepare(packed) for _ in range(COPIES)]
        first = copies[0]
        for m in rows:
            x, turn = torch.randn(m, LARGE[1]).bfloat16(), iter(range(10**9))
            seconds = _interleaved(
                {
                    "ours": lambda x=x, turn=turn, copies=copies: cpu.matmul(
                        x, copies[next(turn) % COPIES], threads=THREADS
                    ),
                    "torch_bf16": lambda x=x, turn=turn: linear(x, full[next(turn) % COPIES]),
                    "read": lambda turn=turn, copies=copies: read(copies[next(turn) % COPIES].codes, THREADS),
                },
                count,
            )
            speeds = [first.codes.nbytes / one for one in seconds["read"]]
            ratios = {
                "torch_bf16": _ratios(seconds["torch_bf16"], seconds["ours"]),
                "bandwidth": [first.nbytes / one / speed for one, speed in zip(seconds["ours"], speeds, strict=True)],
            }
            found.append(
                {"format": packed.format, "shape": list(LARGE), "rows": m, "read_gb_per_s": median(speeds) / 1e9,
                 "packed_bytes": first.nbytes, "seconds": seconds, "ratios": ratios}
            )  # fmt: skip
    return found


def _model_layer(shape: tuple[int, int], rows: int, count: int) -> dict[str, Any]:
    """What the engine calls, in float32. twin: times faster than dequantizing with torch and multiplying."""
    packed = _weight(*shape, "int4", group_size=32)
    prepared, full, x = cpu.prepare(packed), torch.randn(shape), torch.randn(rows, shape[1])
    seconds = _interleaved(
        {
            "ours": lambda: cpu.matmul(x, prepared, threads=THREADS),
            "twin": lambda: cpu.matmul_torch(x, packed),
            "torch_float32": lambda: linear(x, full),
        },
        count,
    )
    ratios = {name: _ratios(seconds[name], seconds["ours"]) for name in ("twin", "torch_float32")}
    return {"format": packed.format, "shape": list(shape), "rows": rows, "seconds": seconds, "ratios": ratios}


def _weight(rows: int, columns: int, kind: str, group_size: int = 128) -> PackedWeight:
    random = torch.Generator().manual_seed(rows + columns)
    codes = torch.randint(0, 256, (rows, columns // 2), generator=random, dtype=torch.uint8)
    if kind == "mxfp4":
        scales = torch.randint(115, 122, (rows, columns // 32), generator=random, dtype=torch.uint8)
        return PackedWeight(code="e2m1", bits=4, shape=(rows, columns), codes=codes, scales=scales, group_size=32)
    scales = (torch.rand(rows, columns // group_size, generator=random) / 100 + 0.001).bfloat16()
    return PackedWeight(
        code="int", bits=4, shape=(rows, columns), codes=codes, scales=scales, group_size=group_size
    )  # fmt: skip


def _aten_int4(packed: PackedWeight) -> tuple[torch.Tensor, torch.Tensor]:
    """The same weight for torch's operator: its codes, and bfloat16 [groups, N, 2] of scales and zeros."""
    codes = torch.stack((packed.codes & 15, packed.codes >> 4), -1).flatten(1).to(torch.int32)
    scales = torch.stack((packed.scales, torch.zeros_like(packed.scales)), -1).transpose(0, 1).contiguous()
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 8), scales


def _interleaved(contenders: Contenders, count: int) -> dict[str, list[float]]:
    """Seconds of every contender in each of `count` rounds, after one round that is not counted. What is over in a
    moment is repeated within its turn."""
    repeats = {}
    for name, contender in contenders.items():
        contender()
        repeats[name] = max(1, min(20, int(0.002 / _seconds(contender, 1))))
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(count):
        for name, contender in contenders.items():
            seconds[name].append(_seconds(contender, repeats[name]))
    return seconds


def _seconds(contender: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        contender()
    return (time.perf_counter() - start) / repeats


def _ratios(over: list[float], under: list[float]) -> list[float]:
    return [one / other for one, other in zip(over, under, strict=True)]


def _shown(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with medians in place of every round, and the spread of its ratios."""
    return entry | {
        "seconds": {name: median(values) for name, values in entry["seconds"].items()},
        "ratios": {name: [min(values), median(values), max(values)] for name, values in entry["ratios"].items()},
    }
