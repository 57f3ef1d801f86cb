"""Workers that compute something else: a fused product, what is kept of keys and values, the parts a batch is read in.

An arm is loaded before anything goes wrong with it: what the self-check at its load would see is refused there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from qualgate.records import Job
from tests.engine.jobs import Kind, under
from tests.verification.verdicts.plantings.mutant import Outcome, Serve, Worker


def within(
    context: Callable[[], AbstractContextManager[Any]], *, drafted: bool = True, kind: Kind | None = None
) -> Serve:
    """kind: of the engine that runs the arm, which serves less than the arm's own does."""

    def serve(worker: Worker, job: Job) -> Outcome:
        worker.load(job.arm)
        assert worker.arm is not None
        if kind is not None:
            worker.arm = under(kind, worker.arm)
        with context():
            return worker.run(job if drafted else replace(job, drafted=False))

    return serve


undrafted = within(nullcontext, drafted=False)


# --------------------------------------------------------------------------------------------------------- products


@contextmanager
def _fusing(nth: int, wrong: Callable[[Any, Callable[..., Any]], Any]) -> Iterator[list[Any]]:
    """The nth fused product, in the order of loading, is what `wrong(found, again)` makes of it; `again(packed)` fuses
    other weights as these were. Yielded: those that were fused."""
    from qualgate.quant import linear

    real, fused = linear.fuse, []

    def fuse(packed: Any, activations: str = "", *, halves: bool = False) -> Any:
        found = real(packed, activations, halves=halves)
        if not isinstance(found, linear.Fused):
            return found
        fused.append(found)
        again = lambda change: real(change(packed), activations, halves=halves)  # noqa: E731
        return wrong(found, again) if len(fused) == nth else found

    with patch.object(linear, "fuse", fuse):
        yield fused


def laid_out(nth: int, wrong: Callable[[Any], Any]) -> Serve:
    """The nth fused product is that of `wrong(packed)`: in C, and by its own layer. The torch twin stays right."""

    def serve(worker: Worker, job: Job) -> Outcome:
        with _fusing(nth, lambda found, again: again(wrong)):
            worker.load(job.arm)
        return worker.run(job)

    return serve


def _rescaled(change: Callable[[Any], object]) -> Callable[[Any], Any]:
    """change: of the scales [outputs, groups], in place."""

    def wrong(packed: Any) -> Any:
        change(scales := packed.scales.clone())
        return replace(packed, scales=scales)

    return wrong


def outputs_scaled(step: int, factor: float) -> Callable[[Any], Any]:
    """Every `step`th output is `factor` times what it should be."""
    return _rescaled(lambda scales: scales[::step].mul_(factor))


last_segment_lost = _rescaled(lambda scales: scales[:, scales.shape[1] // 2 :].zero_())
first_group_tripled = _rescaled(lambda scales: scales[:, 0].mul_(3.0))


def nibbles_swapped(packed: Any) -> Any:
    return replace(packed, codes=packed.codes << 4 | packed.codes >> 4)


def outputs_shifted(packed: Any) -> Any:
    return replace(packed, codes=packed.codes.roll(1, 0), scales=packed.scales.roll(1, 0))


def rows_shifted(nth: int) -> Serve:
    """Each row of the nth fused product gets the result of the row before it. A layer by itself can have that, not a
    plain decoder in C."""

    def serve(worker: Worker, job: Job) -> Outcome:
        loading = True

        def shifted(found: Any, again: Any) -> Any:
            return replace(found, multiply=lambda x: found.multiply(x if loading else x.roll(1, 0).contiguous()))

        with _fusing(nth, shifted) as fused:
            worker.load(job.arm)
        assert worker.arm is not None
        if fused:  # it is not the twin's arm
            worker.arm = under("packed", worker.arm)
        loading = False
        return worker.run(job)

    return serve


# ---------------------------------------------------------------------------------------------------- keys and values


@contextmanager
def kept(change: Callable[[Any, Any], tuple[Any, Any]]) -> Iterator[None]:
    """Keys and values are kept as `change(keys, values)` makes them, [rows, heads, ...] each: by a packed pass through
    a model's own modules, and by a padded batch."""
    from qualgate.engine import attention
    from qualgate.engine.padded.cache import KVLayer

    keep, update = attention.kernel.keep, KVLayer.update

    def packed(blocks: Any, slots: Any, key: Any, value: Any, threads: int) -> None:
        keep(blocks, slots, *(one.contiguous() for one in change(key, value)), threads)

    def padded(self: Any, keys: Any, values: Any, *args: Any, **kwargs: Any) -> Any:
        return update(self, *change(keys, values), *args, **kwargs)

    with patch.object(attention.kernel, "keep", packed), patch.object(KVLayer, "update", padded):
        yield


@contextmanager
def slots_off_by_one() -> Iterator[None]:
    """Padded rows that go on after the prompt find their keys and values one slot too early. Keys bear their place, so
    the order of slots means nothing: what is lost is the first of them, at most.
    """
    from qualgate.engine.padded import cache

    real = cache._aligned

    def aligned(rows: Any, width: int) -> Any:
        return real([(states.roll(-1, 2), row) for states, row in rows], width)

    with patch.object(cache, "_aligned", aligned):
        yield


# --------------------------------------------------------------------------------------------------------- parts


def parts_of(tokens: int) -> Callable[[], AbstractContextManager[Any]]:
    """Batches and passes are read in parts of so many tokens: other neighbours for every row."""

    @contextmanager
    def context() -> Iterator[None]:
        from qualgate.engine import choice

        with (
            patch("qualgate.engine.padded.step_loop.READ_TOKENS", tokens),
            patch.object(choice, "Limits", partial(choice.Limits, rows=tokens)),
        ):
            yield

    return context
