"""Workers that compute something else: a fused product, the cache, the parts a batch is read in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from qualgate.records import Job
from tests.verification.verdicts.plantings.mutant import Outcome, Serve, Worker


def within(context: Callable[[], AbstractContextManager[Any]], *, drafted: bool = True) -> Serve:
    def serve(worker: Worker, job: Job) -> Outcome:
        with context():
            return worker.run(job if drafted else replace(job, drafted=False))

    return serve


undrafted = within(nullcontext, drafted=False)


@contextmanager
def kernel_made(nth: int, wrong: Callable[[Any, Callable[[Any], Any]], Any]) -> Iterator[None]:
    """The nth fused product, in the order of loading, is `wrong(x, multiply)`; the torch twin stays right."""
    from qualgate.quant import linear

    real, count = linear.fuse, 0

    def fuse(packed: Any, activations: str = "") -> Any:
        nonlocal count
        found = real(packed, activations)
        if isinstance(found, linear.Fused):
            count += 1
            if count == nth:
                return replace(found, multiply=lambda x: wrong(x, found.multiply))
        return found

    with patch.object(linear, "fuse", fuse):
        yield


def wrong_scale(x: Any, multiply: Callable[[Any], Any]) -> Any:
    y = multiply(x).clone()
    y[:, ::2] *= 2.0
    return y


def nibbles_swapped(x: Any, multiply: Callable[[Any], Any]) -> Any:
    return multiply(x.view(x.shape[0], -1, 2).flip(-1).reshape(x.shape).contiguous())


def last_segment_lost(x: Any, multiply: Callable[[Any], Any]) -> Any:
    x = x.clone()
    x[:, x.shape[1] // 2 :] = 0
    return multiply(x)


def outputs_shifted(x: Any, multiply: Callable[[Any], Any]) -> Any:
    return multiply(x).roll(1, -1)


def rows_shifted(x: Any, multiply: Callable[[Any], Any]) -> Any:
    return multiply(x.roll(1, 0).contiguous())


def first_group_doubled(x: Any, multiply: Callable[[Any], Any]) -> Any:
    x = x.clone()
    x[:, :64] *= 3.0
    return multiply(x)


@contextmanager
def cache_update(change: Callable[[Any, Any], tuple[Any, Any]]) -> Iterator[None]:
    from qualgate.engine.cache import KVLayer

    real = KVLayer.update

    def update(self: Any, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return real(self, *change(keys, values), *args, **kwargs)

    with patch.object(KVLayer, "update", update):
        yield


@contextmanager
def cache_off_by_one() -> Iterator[None]:
    """Rows that go on after the prompt find their keys and values one slot too early. Keys bear their place, so the
    order of slots means nothing: what is lost is the first of them, at most.
    """
    from qualgate.engine import cache

    real = cache._aligned

    def aligned(rows: Any, width: int) -> Any:
        return real([(states.roll(-1, 2), row) for states, row in rows], width)

    with patch.object(cache, "_aligned", aligned):
        yield


def parts_of(tokens: int) -> Callable[[], AbstractContextManager[Any]]:
    """Batches are read in parts of so many tokens: other neighbours for every row."""

    @contextmanager
    def context() -> Iterator[None]:
        with (
            patch("qualgate.engine.likelihood.PREFILL_TOKENS", tokens),
            patch("qualgate.engine.generate.PREFILL_TOKENS", tokens),
        ):
            yield

    return context
