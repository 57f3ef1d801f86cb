"""What verifying costs: a pass of the products over several rows against one over a single row, v(rows).

The weights are those of several layers walked in turn, more than caches hold, so that one row is bound by memory; how
fast that is, is measured in the same rounds by a plain read of the same bytes with as many threads. Eight rows may be
bound by arithmetic: how fast that is, say multiply-adds that touch no memory, in the same rounds as well. Rows are
float32, as the engine has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import torch

from qualgate.errors import UsageError
from qualgate_kernels import cpu
from qualgate_kernels.cpu.dense_layout import PreparedDense
from qualgate_kernels.cpu.layout import Prepared
from qualgate_kernels.cpu.library import fuse, read
from qualgate_kernels.dense import prepare_dense
from qualgate_kernels.packed import PackedWeight
from tests.benchmarks.shape import Benchmark, told

SIDE = 4096  # in_features and out_features of a layer
WALKED = 2**27  # bytes of layers at least
ROWS = (1, 2, 4, 5, 8, 9, 16, 17)  # what γ of 1 to 16 asks to verify, and one row
VERIFIED = 8  # γ = 7
MOST = {"bfloat16": 1.3, "int4": 2.0, "mxfp4": 2.0}  # v(VERIFIED)
LEAST_SHARE = 0.7  # of the read bandwidth, the plain target at one row
STEPS = 500_000  # of multiply-adds that touch no memory: a few milliseconds, long beside waking a thread
GROUP = 32

Layer = Prepared | PreparedDense


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one format and number of threads, seconds a layer in each round. passes: by rows; read: its bytes, once;
    multiply_add: one of the processor's, all threads at once. nbytes: what a product reads of a layer; weights: its
    in_features times its out_features."""

    format: str
    threads: int
    nbytes: int
    weights: int
    passes: Mapping[int, Sequence[float]]
    read: Sequence[float]
    multiply_add: Sequence[float]

    def times(self, rows: int) -> list[float]:
        """v(rows) of each round."""
        return [several / one for several, one in zip(self.passes[rows], self.passes[1], strict=True)]

    @property
    def share(self) -> list[float]:
        """Of each round, what one row reads a second over a plain read's."""
        return [read / one for read, one in zip(self.read, self.passes[1], strict=True)]

    def least(self, rows: int) -> list[float]:
        """What v(rows) could come down to in each round if neither memory nor multipliers waited."""
        return [
            max(read, rows * self.weights * each) / one
            for read, each, one in zip(self.read, self.multiply_add, self.passes[1], strict=True)
        ]

    @property
    def shown(self) -> dict[str, Any]:
        """What a result tells of its rounds: medians."""
        speed = self.nbytes / median(self.read) / 1e9
        return {
            "verify_cost": self.format, "threads": self.threads, "layer_bytes": self.nbytes,
            "read_gb_per_s": speed, "one_row_gb_per_s": self.nbytes / median(self.passes[1]) / 1e9,
            "gmadd_per_s": 1e-9 / median(self.multiply_add),
            "seconds": {str(rows): median(seconds) for rows, seconds in self.passes.items()},
            "v": {str(rows): median(self.times(rows)) for rows in self.passes},
        }  # fmt: skip


def costs(rounds: int, side: int = SIDE, walked: int = WALKED) -> list[Cost]:
    """Of every format and of one thread and two (one where there is one core). About a minute of idle cores for 15
    rounds. UsageError without the compiled kernels."""
    if not cpu.paths():
        raise UsageError(f"there is nothing to time: {cpu.available()}")
    threads = [one for one in (1, 2) if one <= len(os.sched_getaffinity(0))]
    found = []
    for kind in told("verify cost", list(MOST)):
        layers = _layers(kind, side, walked)
        found += [_cost(kind, layers, one, rounds) for one in threads]
    return found


def target_bandwidth(bench: Benchmark, found: Sequence[Cost]) -> dict[str, Any]:
    """The row of that id: of a bfloat16 target at one row, on as many threads as it does worst with."""
    worst = min((one for one in found if one.format == "bfloat16"), key=lambda one: median(one.share))
    middle = median(worst.share)
    row = bench.row("target_bandwidth", middle, met=middle >= LEAST_SHARE, spread=[min(worst.share), max(worst.share)])
    return row | {"threads": worst.threads}


def verify(bench: Benchmark, found: Sequence[Cost]) -> dict[str, Any]:
    """The row of that id: v(8) by format and threads, and what it could come down to (`least`) with arithmetic as fast
    as the processor's and memory as fast as a plain read."""
    by_name = {f"{one.format}, threads {one.threads}": one for one in found}
    middle = {name: median(one.times(VERIFIED)) for name, one in by_name.items()}
    met = all(middle[name] <= MOST[one.format] for name, one in by_name.items())
    spread = {name: [min(one.times(VERIFIED)), max(one.times(VERIFIED))] for name, one in by_name.items()}
    least = {name: median(one.least(VERIFIED)) for name, one in by_name.items()}
    return bench.row("verify", middle, met=met, spread=spread) | {"least": least}


def _layers(kind: str, side: int, walked: int) -> list[Layer]:
    """Different ones, of so many bytes together."""
    layers: list[Layer] = []
    while sum(one.nbytes for one in layers) < walked:
        random = torch.Generator().manual_seed(len(layers))
        layer = _layer(kind, side, random)
        assert not isinstance(layer, str), layer
        layers.append(layer)
    return layers


def _layer(kind: str, side: int, random: torch.Generator) -> Layer | str:
    if kind == "bfloat16":
        dense = prepare_dense(torch.randn(side, side, generator=random, dtype=torch.bfloat16))
        return dense if isinstance(dense, PreparedDense | str) else "not on a CPU"
    codes = torch.randint(0, 256, (side, side // 2), generator=random, dtype=torch.uint8)
    if kind == "mxfp4":
        code, scales = "e2m1", torch.randint(115, 122, (side, side // GROUP), generator=random, dtype=torch.uint8)
    else:
        code, scales = "int", (torch.rand(side, side // GROUP, generator=random) / 100 + 0.001).bfloat16()
    return cpu.prepare(
        PackedWeight(code=code, bits=4, shape=(side, side), codes=codes, scales=scales, group_size=GROUP)
    )


def _cost(kind: str, layers: Sequence[Layer], threads: int, rounds: int) -> Cost:
    """Each round walks all layers once for every number of rows and once to read them; who begins changes."""
    side = layers[0].shape[1]
    bytes_of = [one.values if isinstance(one, PreparedDense) else one.codes for one in layers]
    generator = torch.Generator().manual_seed(threads)
    rows_of_x = {rows: torch.randn(rows, side, generator=generator) for rows in ROWS}
    whole = layers[0].nbytes / bytes_of[0].nbytes  # scales are read as well

    def passed(rows: int) -> float:
        return _seconds(lambda: [cpu.matmul(rows_of_x[rows], one, threads=threads) for one in layers]) / len(layers)

    turns: dict[int | str, Callable[[], float]] = {rows: (lambda rows=rows: passed(rows)) for rows in ROWS}
    turns["read"] = lambda: _seconds(lambda: [read(one, threads) for one in bytes_of]) * whole / len(layers)
    turns["fuse"] = lambda: _seconds(lambda: fuse(STEPS, threads)) / fuse(1, threads) / STEPS
    found: dict[int | str, list[float]] = {name: [] for name in turns}
    names = list(turns)
    for at in range(rounds + 1):
        for name in names[at % len(names) :] + names[: at % len(names)]:
            found[name].append(turns[name]())
    counted = {name: seconds[1:] for name, seconds in found.items()}  # the first round warms up
    return Cost(
        format=kind, threads=threads, nbytes=layers[0].nbytes, weights=layers[0].shape[0] * side,
        passes={rows: counted[rows] for rows in ROWS}, read=counted["read"], multiply_add=counted["fuse"],
    )  # fmt: skip


def _seconds(work: Callable[[], object]) -> float:
    began = perf_counter()
    work()
    return perf_counter() - began
