"""Workers that accept of a draft what the arm would not have said, or lose what it accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

Force = Callable[[Sequence[int], Sequence[float], Sequence[int]], list[int]]
"""(the tokens that the arm would say, by how much each leads, the tokens offered in their places) → what it says."""


@contextmanager
def accepting(force: Force) -> Iterator[None]:
    """Of an answer that was read, and of a draft, is accepted what `force` makes the arm say: in either engine."""
    from qualgate.engine import packed
    from qualgate.engine.padded.transcript import Transcript

    advance, tell_read = packed._Run._advance, Transcript._tell_read

    def forced_advance(self: Any, one: Any, draft: Sequence[int], of: Any, start: int) -> Any:
        end = start + len(draft)
        of.tokens[start:end] = force(of.tokens[start:end], of.margins[start:end], draft)
        return advance(self, one, draft, of, start)

    def forced_read(self: Any, rows: Any, states: Any) -> Any:
        would, tokens = tell_read(self, rows, states), []
        for row in rows:
            here = slice(len(tokens), len(tokens) + len(row.request.answer))
            tokens += force(would.tokens[here].tolist(), would.margins[here].tolist(), row.request.answer)
        return would._replace(tokens=would.tokens.new_tensor(tokens))

    with patch.object(packed._Run, "_advance", forced_advance), patch.object(Transcript, "_tell_read", forced_read):
        yield


@contextmanager
def losing_the_first() -> Iterator[None]:
    """Of tokens that are told at once, as those of an answer that was read are, the first is never told."""
    from qualgate.engine.packed import PackedEngine
    from qualgate.engine.padded.engine import PaddedEngine

    def losing(run: Any) -> Any:
        def lost(self: Any, requests: Any, proposer: Any, on_event: Any, draws: Any = None) -> None:
            run(self, requests, proposer, lambda event: on_event(_without_first(event)), draws)

        return lost

    with (
        patch.object(PackedEngine, "run", losing(PackedEngine.run)),
        patch.object(PaddedEngine, "run", losing(PaddedEngine.run)),
    ):
        yield


def _without_first(event: Any) -> Any:
    from qualgate.engine.request import Spoken

    if not isinstance(event, Spoken) or event.states is not None:
        return event
    several = {request for request, position in zip(event.requests, event.positions, strict=True) if position == 1}
    kept = [at for at, one in enumerate(event.positions) if one or event.requests[at] not in several]
    return Spoken(
        **{
            name: [getattr(event, name)[at] for at in kept]
            for name in ("requests", "positions", "tokens", "logprobs", "margins")
        },
        states=None,
        seconds=event.seconds,
    )


def one_too_many(would: Sequence[int], leads: Sequence[float], offered: Sequence[int]) -> list[int]:
    """The first token that the arm would not have said is accepted as well."""
    differs = [own != other for own, other in zip(would, offered, strict=True)]
    at = [*differs, True].index(True)
    return [*would[:at], *offered[at : at + 1], *would[at + 1 :]]


def all_accepted(would: Sequence[int], leads: Sequence[float], offered: Sequence[int]) -> list[int]:
    return list(offered)


LEAD = 2.0  # logits


def unless_sure(would: Sequence[int], leads: Sequence[float], offered: Sequence[int]) -> list[int]:
    """A token is accepted unless another one leads by LEAD logits."""
    return [other if lead < LEAD else own for own, lead, other in zip(would, leads, offered, strict=True)]
