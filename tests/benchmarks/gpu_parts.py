"""What is measured on a GPU beside the packed products: dense products, attention, a step.

Each part takes its machine and sizes, so that Triton's interpreter can run it on small ones. None has run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch

from qualgate_kernels.dense import norm_torch
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.kept import FORMS, bytes_of_position
from qualgate_kernels.linear import matmul
from qualgate_kernels.paged import Blocks, Places, Seen, attend_torch, new_blocks
from qualgate_kernels.planes import lay_out
from qualgate_kernels.rotary import turn_torch
from qualgate_kernels.slots import SLOTS
from tests.benchmarks.goals import GPU_OTHERS as GOALS
from tests.benchmarks.gpu_table import Part
from tests.packed_samples import weight

Work = Callable[[], Any]
LIMITS = {
    "dense_price": 1.15, "rotary_speed": 3.0, "paged_bfloat16": 0.7, "paged_fp8": 1.7, "paged_int8": 1.7,
    "paged_int4": 2.8, "step_graph": 1.5, "step_int4": 600.0, "step_bf16": 230.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Machine:
    """seconds: of one call of some work, of so many; captured: the same work as one graph, or as it is; copy: bytes a
    second of a large copy, read and written."""

    device: torch.device
    seconds: Callable[[Work, int], float]
    captured: Callable[[Work], Work]
    copy: Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """A model of 8 billion parameters, unless said otherwise. queries, keys: heads; context: positions of each of
    `sequences`; rounds: of every figure."""

    width: int = 4096
    inner: int = 14_336
    layers: int = 32
    vocabulary: int = 128_256
    queries: int = 32
    keys: int = 8
    dim: int = 128
    context: int = 4096
    sequences: int = 32
    rounds: int = 5


def parts(machine: Machine, sizes: Sizes) -> list[Part]:
    """Checks, then figures."""
    makers: dict[str, Callable[[Machine, Sizes], Any]] = {
        "check dense": _check_dense, "check norm": _check_norm, "check rotary": _check_rotary,
        **{f"check paged {form}": partial(_check_paged, form=form) for form in FORMS},
        "dense": _dense, "rotary": _rotary,
        **{f"paged {form}": partial(_paged, form=form) for form in FORMS if form != "float32"},
        "step int4": partial(_step, packed=True), "step bf16": partial(_step, packed=False),
    }  # fmt: skip
    return [Part(id, lambda before, make=make: make(machine, sizes)) for id, make in makers.items()]


def rows_of(figures: Mapping[str, Any], failed: Mapping[str, str]) -> list[dict[str, Any]]:
    """The goal table; what was not measured is neither met nor missed. A wrong kernel has no speed: nothing is met."""
    checks = {id: found for id, found in figures.items() if id.startswith("check ")}
    wrong = [id for id, found in checks.items() if not all(one["passed"] for one in found)]
    wrong += [id for id in failed if id.startswith("check ")]
    whole = len(checks) >= 3 + len(FORMS)  # those of packed products stand beside
    rows: list[dict[str, Any]] = [
        {"id": "right", "goal": GOALS["right"], "measured": len(checks), "met": False if wrong else whole or None}
        | ({"reason": ", ".join(wrong)} if wrong else {})
    ]
    for id, value in _values(figures).items():
        row: dict[str, Any] = {"id": id, "goal": GOALS[id], "measured": value, "met": None}
        if value is None:
            row["reason"] = "not measured"
        else:
            met = value <= LIMITS[id] if id == "dense_price" else value >= LIMITS[id]
            row["met"] = False if wrong else met if whole else None
        rows.append(row)
    return rows


def _values(figures: Mapping[str, Any]) -> dict[str, float | None]:
    def ratio(part: str, over: str, under: str, other: str = "") -> float | None:
        one, two = figures.get(part), figures.get(other or part)
        return None if one is None or two is None else median(one[over]) / median(two[under])

    plain = "paged bfloat16"
    speeds = {form: ratio(plain, "seconds", "seconds", f"paged {form}") for form in ("fp8", "int8", "int4")}
    floor = figures.get(plain)
    steps = {name: figures.get(f"step {name}") for name in ("int4", "bf16")}
    return {
        "dense_price": ratio("dense", "ours", "torch"),
        "rotary_speed": ratio("rotary", "torch", "ours"),
        "paged_bfloat16": None if floor is None else floor["bytes"] / median(floor["seconds"]) / median(floor["copy"]),
        **{f"paged_{form}": value for form, value in speeds.items()},
        "step_graph": ratio("step int4", "launched", "seconds"),
        **{f"step_{name}": None if one is None else 1 / median(one["seconds"]) for name, one in steps.items()},
    }


def _check(what: str, passed: bool) -> dict[str, Any]:
    return {"check": what, "passed": bool(passed)}


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def _near(found: torch.Tensor, exact: torch.Tensor, limit: float) -> bool:
    return bool((found.double() - exact.double()).abs().max() <= limit * exact.double().abs().max())


def _random(machine: Machine, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, device=machine.device, generator=torch.Generator(machine.device).manual_seed(seed))


def _check_dense(machine: Machine, sizes: Sizes) -> list[dict[str, Any]]:
    from qualgate_kernels.dense_gpu import matmul_dense_triton

    found = []
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        held = _random(machine, 1000, sizes.width, seed=1).to(dtype)
        x = _random(machine, 70, sizes.width)
        whole = matmul_dense_triton(x, held)
        found.append(_check(f"{dtype}: near", _near(whole, x.double() @ held.double().T, 1e-5)))
        for rows in (1, 2, 8, 16, 17, 33):
            alone = matmul_dense_triton(x[:rows].contiguous(), held)
            found.append(_check(f"{dtype}: the bits of {rows} rows", _same(alone, whole[:rows])))
    return found


def _check_norm(machine: Machine, sizes: Sizes) -> list[dict[str, Any]]:
    from qualgate_kernels.dense_gpu import norm_triton

    x, by = _random(machine, 9, sizes.width), _random(machine, sizes.width, seed=1)
    whole = norm_triton(x, by, 1e-6)
    alone = norm_triton(x[3:4].contiguous(), by, 1e-6)
    return [_check("near", _near(whole, norm_torch(x, by, 1e-6), 1e-5)), _check("bits", _same(alone, whole[3:4]))]


def _turned(machine: Machine, sizes: Sizes, rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Queries, keys, cosines and sines as a layer has them before heads are turned."""
    angles = _random(machine, 1, rows, sizes.dim, seed=2)
    heads = [
        _random(machine, 1, rows, count, sizes.dim, seed=seed).to(dtype).transpose(1, 2)
        for seed, count in enumerate((sizes.queries, sizes.keys))
    ]
    return [*heads, angles.cos(), angles.sin()]


def _check_rotary(machine: Machine, sizes: Sizes) -> list[dict[str, Any]]:
    from qualgate_kernels.rotary_gpu import turn_triton

    found = []
    for dtype in (torch.float32, torch.bfloat16):
        asked = _turned(machine, sizes, 9, dtype)
        pairs = zip(("queries", "keys"), turn_triton(*asked), turn_torch(*asked), strict=True)
        found += [_check(f"{dtype}: the twin's bits, {name}", _same(one, other)) for name, one, other in pairs]
    return found


def _sequences(machine: Machine, sizes: Sizes, form: str, count: int, length: int) -> tuple[Blocks, Places]:
    """Sequences whose last position is asked, all of their positions filled."""
    from qualgate_kernels.paged_gpu import keep_paged_triton

    width = -(-length // SLOTS)
    blocks = new_blocks(count * width, sizes.keys, sizes.dim, form=form, device=machine.device)
    table = torch.randperm(count * width, generator=torch.Generator().manual_seed(0)).int().view(count, width)
    for number in range(count):
        here = torch.full((length,), number, dtype=torch.int32)
        places = Places(table=table, sequence=here, position=torch.arange(length, dtype=torch.int32))
        both = _random(machine, 2, length, sizes.keys, sizes.dim, seed=number)
        keep_paged_triton(blocks, places, both[0], both[1])
    last = torch.full((count,), length - 1, dtype=torch.int32)
    return blocks, Places(table=table, sequence=torch.arange(count, dtype=torch.int32), position=last)


def _check_paged(machine: Machine, sizes: Sizes, form: str) -> list[dict[str, Any]]:
    from qualgate_kernels.paged_gpu import attend_paged_triton

    blocks, last = _sequences(machine, sizes, form, 2, 300)
    positions = torch.tensor([0, 5, 255, 256, 257, 290, 299], dtype=torch.int32)
    rows = Places(table=last.table, sequence=torch.zeros(7, dtype=torch.int32), position=positions)
    query, found = _random(machine, 7, sizes.queries, sizes.dim), []
    for name, seen in {"all": Seen(scale=0.1), "window, cap": Seen(scale=0.1, window=40, soft_cap=20.0)}.items():
        whole = attend_paged_triton(query, blocks, rows, seen, split=False)
        found += [
            _check(f"{name}: near", _near(whole, attend_torch(query, blocks, rows, seen), 1e-4)),
            _check(f"{name}: split", _same(attend_paged_triton(query, blocks, rows, seen, split=True), whole)),
        ]
        for row in (0, 3, 6):
            one = replace(rows, sequence=rows.sequence[row : row + 1], position=positions[row : row + 1].clone())
            alone = attend_paged_triton(query[row : row + 1].contiguous(), blocks, one, seen)
            found.append(_check(f"{name}: the bits of row {row}", _same(alone[0], whole[row])))
    return found


def _dense(machine: Machine, sizes: Sizes) -> dict[str, Any]:
    """Seconds of a product of one row, ours and torch's in turn, over copies that no cache holds."""
    from qualgate_kernels.dense_gpu import matmul_dense_triton

    one = _random(machine, sizes.inner, sizes.width).bfloat16()
    copies = [one.clone() for _ in range(max(2, sizes.layers // 4))]
    x = _random(machine, 1, sizes.width)
    ours = machine.captured(lambda: [matmul_dense_triton(x, each) for each in copies])
    theirs = machine.captured(lambda: [torch.nn.functional.linear(x.bfloat16(), each) for each in copies])
    found: dict[str, list[float]] = {"ours": [], "torch": []}
    for _ in range(sizes.rounds):
        found["ours"].append(machine.seconds(ours, 20) / len(copies))
        found["torch"].append(machine.seconds(theirs, 20) / len(copies))
    return found


def _rotary(machine: Machine, sizes: Sizes) -> dict[str, Any]:
    """Seconds to turn the heads of one row of a layer, ours and torch's in turn, each in a graph of all layers."""
    from qualgate_kernels.rotary_gpu import turn_triton

    asked = _turned(machine, sizes, 1, torch.float32)
    works = {
        name: machine.captured(lambda turn=turn: [turn(*asked) for _ in range(sizes.layers)])
        for name, turn in (("ours", turn_triton), ("torch", turn_torch))
    }
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(sizes.rounds):
        for name, work in works.items():
            found[name].append(machine.seconds(work, 20) / sizes.layers)
    return found


def _paged(machine: Machine, sizes: Sizes, form: str) -> dict[str, Any]:
    """One row each of many sequences, launched as a layer launches it: the pass's places are there."""
    from qualgate_kernels.packs import prepare
    from qualgate_kernels.paged_gpu import attend_paged_triton

    blocks, last = _sequences(machine, sizes, form, sizes.sequences, sizes.context)
    places = prepare(last, blocks.count, machine.device)
    query, seen = _random(machine, sizes.sequences, sizes.queries, sizes.dim), Seen(scale=sizes.dim**-0.5)
    attend_paged_triton(query, blocks, places, seen)
    found: dict[str, Any] = {"seconds": [], "copy": []}
    for _ in range(sizes.rounds):
        found["seconds"].append(machine.seconds(lambda: attend_paged_triton(query, blocks, places, seen), 20))
        found["copy"].append(machine.copy())
    read = sizes.sequences * sizes.context * bytes_of_position(form, sizes.keys, sizes.dim)
    return found | {"bytes": read, "held": blocks.nbytes}


def _step(machine: Machine, sizes: Sizes, packed: bool) -> dict[str, Any]:
    """Norms and products of one row through all layers, int4 g128 or bfloat16, and a bfloat16 head: as one graph, and
    launched one by one."""
    from qualgate_kernels.dense_gpu import matmul_dense_triton, norm_triton

    heads = (sizes.queries + 2 * sizes.keys) * sizes.dim
    shapes = ((heads, sizes.width), (sizes.width, sizes.queries * sizes.dim), (2 * sizes.inner, sizes.width),
              (sizes.width, sizes.inner))  # fmt: skip
    made = [weight("int4 g128", *shape) for shape in shapes]
    made = [one.to(machine.device) for one in made]
    inputs = [_random(machine, 1, shape[1]) for shape in shapes]
    ones, calls = torch.ones(sizes.width, device=machine.device), list[Work]()
    for _ in range(sizes.layers):
        for number, (one, x) in enumerate(zip(made, inputs, strict=True)):
            if number % 2 == 0:
                calls.append(partial(norm_triton, x, ones[: x.shape[1]], 1e-6))
            if packed:
                layer = lay_out(replace(one, codes=one.codes.clone()))
                calls.append(partial(matmul, x.bfloat16(), layer))
            else:
                dense = dequantize_torch(one).bfloat16()
                calls.append(partial(matmul_dense_triton, x, dense))
    head = _random(machine, sizes.vocabulary, sizes.width).bfloat16()
    calls.append(lambda: matmul_dense_triton(inputs[0], head))
    works = {"launched": lambda: [call() for call in calls]}
    works["seconds"] = machine.captured(works["launched"])
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(sizes.rounds):
        for name, work in works.items():
            found[name].append(machine.seconds(work, 5))
    return found | {"layers": sizes.layers}
