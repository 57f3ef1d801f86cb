"""A whole step of the engine (schedule, pass, head, choice of a token, events) over the products in it alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import Any

import torch

from qualgate.engine.choice import open_engine
from qualgate.engine.dense import DenseLinear
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.request import Event, Request, Spoken
from qualgate.quant.linear import QuantizedLinear
from qualgate_kernels import cpu
from qualgate_kernels.cpu.dense_layout import PreparedDense
from qualgate_kernels.cpu.layout import Prepared
from qualgate_kernels.dense import prepare_dense

POSITIONS = 230  # of each row, where the step is
STEPS = 40  # timed, half of them before POSITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Of one round, seconds: a step of so many rows, and its products, called one by one; calls: what as many calls
    with next to nothing to multiply take."""

    rows: int
    step: float
    products: float
    calls: float


def steps(arm: LoadedArm, rows: int, rounds: int) -> list[Steps]:
    """Rounds of both, one after the other. ValueError for an arm with a layer that no kernel in C multiplies."""
    layouts = _layouts(arm.model)
    found = []
    for _ in range(rounds):
        step = _step(arm, rows)
        products, calls = _products(layouts, rows)
        found.append(Steps(rows=rows, step=step, products=products, calls=calls))
    return found


def _step(arm: LoadedArm, rows: int) -> float:
    """The middle one's seconds, of those in which every row says a token."""
    draw, vocabulary = random.Random(rows), arm.model.config.get_text_config().vocab_size
    start = POSITIONS - STEPS // 2
    # Those that were read first go on while others are read: so many steps before all are there, and as many after.
    early = rows * start // 512 + 1
    requests = [
        Request(prompt=tuple(draw.randrange(vocabulary) for _ in range(start)), max_new_tokens=STEPS + early)
        for _ in range(rows)
    ]
    told: list[float] = []

    def take(event: Event) -> None:
        if isinstance(event, Spoken):
            told.append(event.seconds if len(event.requests) == rows else -1.0)

    with open_engine(arm.model, arm.choice) as engine:
        engine.run(requests, None, take)
    return median(after - before for before, after in pairwise(told) if before >= 0 <= after)


def _products(layouts: Sequence[Prepared | PreparedDense], rows: int) -> tuple[float, float]:
    """Seconds of a step's products in a row, the middle of STEPS times, and of as many calls that multiply nearly
    nothing."""
    generator = torch.Generator().manual_seed(rows)
    inputs = {columns: torch.randn(rows, columns, generator=generator) for columns in {one.shape[1] for one in layouts}}
    tiny = prepare_dense(torch.zeros(16, 16))
    assert not isinstance(tiny, str)
    products = [(inputs[one.shape[1]], one) for one in layouts]
    calls = [(torch.zeros(rows, 16), tiny)] * len(layouts)
    return median(_seconds(products) for _ in range(STEPS)), median(_seconds(calls) for _ in range(STEPS))


def _seconds(products: Sequence[tuple[torch.Tensor, Any]]) -> float:
    began = perf_counter()
    for x, weight in products:
        cpu.matmul(x, weight)
    return perf_counter() - began


def _layouts(model: torch.nn.Module) -> list[Prepared | PreparedDense]:
    """Of every product of a pass, in order; layers that were fused into one are one."""
    found: dict[int, Prepared | PreparedDense] = {}
    for name, module in model.named_modules():
        layout = None
        if isinstance(module, QuantizedLinear):
            layout = module.layout
        elif isinstance(module, DenseLinear):
            layout = module.prepared
        elif not isinstance(module, torch.nn.Linear):
            continue
        if not isinstance(layout, Prepared | PreparedDense):
            raise ValueError(f"{name}: no kernel in C multiplies it")
        found[id(layout)] = layout
    return list(found.values())
