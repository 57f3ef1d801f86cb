"""Packed products on this machine's GPU, beside the others' in the same run.

Every provider multiplies weights that the L2 cache cannot hold: copies of 512 MB in all, one call each in a CUDA graph.
Providers take turns, round by round, and what is quoted are ratios of medians. A provider whose product is wrong is
left out, and so is its ratio.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from qualgate_kernels.linear import matmul, matmul_torch
from qualgate_kernels.packed import PackedWeight, unpack_codes
from qualgate_kernels.planes import Prepared, lay_out
from tests.benchmarks.goals import GPU_PRODUCTS as GOALS
from tests.packed_samples import weight

SHAPES = {"8192": (8192, 8192), "28672": (28672, 4096)}
ROWS = (1, 4, 8, 16)
ROTATED = 512 * 2**20  # bytes of distinct weights, ten times the L2 cache
Call = Callable[[torch.Tensor], torch.Tensor]


def _row(
    id: str, measured: Any = None, spread: Any = None, met: bool | None = None, reason: str = ""
) -> dict[str, Any]:
    row = {"id": id, "goal": GOALS[id], "measured": measured, "spread": spread, "met": met}
    return row | {"met": None, "reason": reason} if reason else row


def _checks(form: str) -> list[dict[str, Any]]:
    """Bits of a row alone and among 1 to 2047 others; the product against the twin's in float64."""
    packed = weight(form, 1000, 4096)
    packed = packed.to("cuda")
    prepared = lay_out(packed)
    found = []
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        x = torch.randn(2048, 4096, device="cuda").to(dtype)
        alone = matmul(x[:1], prepared)
        for rows in (2, 8, 16, 17, 33, 64, 256, 2048):
            same = torch.equal(matmul(x[:rows], prepared)[:1], alone)
            found.append({"check": f"{form}, {dtype}: a row's bits beside {rows - 1} others", "passed": same})
        exact = x[:64].double() @ _dense(packed).double().T
        error = float((matmul(x[:64], prepared).double() - exact).abs().max() / exact.abs().max())
        limit = 2 * torch.finfo(dtype).eps + 4096 * 2**-24
        found.append({"check": f"{form}, {dtype}: largest error {error:.1e}", "passed": error <= limit})
    return found


def _dense(packed: PackedWeight) -> torch.Tensor:
    from qualgate_kernels.dequantize import dequantize_torch

    return dequantize_torch(packed)


def _timed(name: str, shape: tuple[int, int], quick: bool) -> list[dict[str, Any]]:
    """Rounds of one shape: {"shape", "rows", "round", provider: seconds a call, ..., "copy": bytes a second}."""
    packed = weight("int4 g128", *shape)
    packed = packed.to("cuda")
    prepared = lay_out(packed)
    providers: dict[str, list[Call]] = {"ours": _ours(prepared)}
    for splits in (1, 2, 4, 8):
        if splits != prepared.splits:
            providers[f"ours in {splits}"] = _ours(lay_out(packed, splits=splits))
    dense = _dense(packed).bfloat16()
    providers["torch bf16"] = [(lambda x, w=w: torch.nn.functional.linear(x, w)) for w in _copies(dense, dense.nbytes)]
    left_out: dict[str, str] = {}
    for other, make in (("torch int4", _torch_int4), ("gemlite", _gemlite), ("marlin", _marlin)):
        try:
            calls = make(packed)
            probe = torch.randn(16, shape[1], device="cuda", dtype=torch.bfloat16) / shape[1] ** 0.5
            expected = matmul_torch(probe, packed).float()
            error = float((calls[0](probe).float() - expected).abs().max() / expected.abs().max())
            if not error < 0.05:
                raise ValueError(f"its product is off by {error:.1%}")
            providers[other] = calls
        except Exception as error:  # whatever a library that is not ours may raise
            left_out[other] = f"{type(error).__name__}: {error}"[:200]
    rounds = []
    for rows in ROWS:
        x = torch.randn(rows, shape[1], device="cuda", dtype=torch.bfloat16)
        graphs = {provider: _graph(calls, x) for provider, calls in providers.items()}
        for number in range(3 if quick else 7):
            found: dict[str, Any] = {"shape": name, "rows": rows, "round": number, "splits": prepared.splits}
            found["copy"] = _copy_bandwidth()
            for provider, graph in graphs.items():
                found[provider] = _seconds(graph.replay, 5 if quick else 20) / len(providers[provider])
            found["copy after"] = _copy_bandwidth()
            rounds.append(found | {"bytes": prepared.nbytes, "left_out": left_out})
    return rounds


def _ours(prepared: Prepared) -> list[Call]:
    assert prepared.words is not None
    return [
        (lambda x, one=one: matmul(x, one))
        for one in [replace(prepared, words=words) for words in _copies(prepared.words, prepared.nbytes)]
    ]


def _copies(tensor: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [tensor.clone() for _ in range(-(-ROTATED // size))]


def _torch_int4(packed: PackedWeight) -> list[Call]:
    """torch's own int4 product (tinygemm): weight = (code - 8) * scale + zero, two codes a byte, the even one high."""
    codes = unpack_codes(packed.codes, 4, packed.shape[1])
    bytes_ = codes[:, ::2] << 4 | codes[:, 1::2]
    words = torch.ops.aten._convert_weight_to_int4pack(bytes_.contiguous(), 8)
    scales = packed.scales.T.unsqueeze(-1)
    both = torch.cat([scales, torch.zeros_like(scales)], -1).contiguous()
    return [
        (lambda x, w=w: torch.ops.aten._weight_int4pack_mm(x, w, packed.group_size, both))
        for w in _copies(words, words.nbytes + both.nbytes)
    ]


def _gemlite(packed: PackedWeight) -> list[Call]:
    gemlite = importlib.import_module("gemlite")

    codes = unpack_codes(packed.codes, 4, packed.shape[1])
    layers = []
    for _ in range(-(-ROTATED // packed.nbytes)):
        layer = gemlite.GemLiteLinear(
            4, packed.group_size, packed.shape[1], packed.shape[0], gemlite.DType.BF16, gemlite.DType.BF16
        )
        layer.pack(codes.clone(), packed.scales, torch.full_like(packed.scales, 8), None)
        layers.append(layer)
    return [(lambda x, layer=layer: layer(x)) for layer in layers]


def _marlin(packed: PackedWeight) -> list[Call]:
    """vLLM's Marlin, through the helpers of its own tests."""
    folder = "vllm.model_executor.layers.quantization.utils"
    marlin_utils = importlib.import_module(f"{folder}.marlin_utils")
    marlin_utils_test = importlib.import_module(f"{folder}.marlin_utils_test")
    scalar_types = importlib.import_module("vllm.scalar_type").scalar_types

    _, q, scales, order, sort, _ = marlin_utils_test.marlin_quantize(
        _dense(packed).T.bfloat16().contiguous(), scalar_types.uint4b8, packed.group_size, False
    )
    return [
        (
            lambda x, q=copy: marlin_utils.apply_gptq_marlin_linear(
                x, q, scales, marlin_utils.marlin_make_empty_g_idx(x.device), order, sort,
                marlin_utils.marlin_make_workspace_new(x.device), scalar_types.uint4b8, *packed.shape, True,
            )
        )
        for copy in _copies(q, q.nbytes)
    ]  # fmt: skip


def _graph(calls: list[Call], x: torch.Tensor) -> torch.cuda.CUDAGraph:
    """One call per copy of the weight, captured after a warm-up that compiles."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call(x)
    graph.replay()
    return graph


def _seconds(work: Callable[[], object], times: int) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(times):
        work()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1000 / times


def _copy_bandwidth() -> float:
    """Bytes a second of a 1 GiB copy, read and written."""
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.nbytes / _seconds(lambda: target.copy_(source), 5)


def _goals(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the goal table. A round in which the copy's bandwidth moved by more than a tenth does not count."""
    steady = [one for one in rounds if abs(one["copy after"] / one["copy"] - 1) <= 0.1]
    kept = {
        (name, rows): [one for one in steady if (one["shape"], one["rows"]) == (name, rows)]
        for name in SHAPES
        for rows in ROWS
    }
    if not all(kept.values()):
        return [_row(id, reason="the machine was too unsteady: the copy's bandwidth moved") for id in GOALS]

    def middle(name: str, rows: int, of: Callable[[dict[str, Any]], float]) -> float:
        return statistics.median(of(one) for one in kept[name, rows])

    def worst(name: str, of: Callable[[dict[str, Any]], float]) -> tuple[float, list[float]]:
        each = [middle(name, rows, of) for rows in ROWS]
        return min(each), [min(each), max(each)]

    goals = []
    for name in SHAPES:
        least, spread = worst(name, lambda one: one["bytes"] / one["ours"] / one["copy"])
        goals.append(_row(f"int4_{name}_bandwidth", least, spread, least >= 0.75))
        least, spread = worst(name, lambda one: one["torch bf16"] / one["ours"])
        goals.append(_row(f"int4_{name}_bf16", least, spread, least >= 3.0))
        left_out = kept[name, 1][0]["left_out"]
        others = [other for other in ("torch int4", "gemlite", "marlin") if other not in left_out]
        if others:
            least, spread = worst(name, lambda one, o=tuple(others): min(one[other] for other in o) / one["ours"])
            goals.append(_row(f"int4_{name}_best", least, spread, least >= 1.0) | {"left_out": left_out})
        else:
            goals.append(_row(f"int4_{name}_best", reason=f"none could be run: {left_out}"))
    verify = [middle(name, 8, lambda one: one["ours"]) / middle(name, 1, lambda one: one["ours"]) for name in SHAPES]
    goals.append(_row("verify_cost", max(verify), [min(verify), max(verify)], max(verify) <= 1.15))
    taxes = []
    for name in SHAPES:
        for rows in ROWS:
            ours = [key for key in kept[name, rows][0] if key.startswith("ours")]
            best = min(middle(name, rows, lambda one, key=key: one[key]) for key in ours)
            taxes.append(middle(name, rows, lambda one: one["ours"]) / best - 1)
    goals.append(_row("invariance_tax", max(taxes), [min(taxes), max(taxes)], max(taxes) <= 0.05))
    return sorted(goals, key=lambda row: list(GOALS).index(row["id"]))
