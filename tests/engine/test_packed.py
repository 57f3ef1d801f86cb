"""Packed passes: no bit of a request depends on what rides along, is drafted, cached or thrown out, nor on threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from qualgate.engine import packed
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.propose import Draft, DraftRequest
from qualgate_kernels.slots import SLOTS
from tests.depth import with_proofs
from tests.engine.engines import (
    MOST,
    PACKED,
    Kind,
    Told,
    answered,
    asked,
    drafts_of,
    opened,
    questions,
    reference,
    right_answers,
)

FEW = 12  # blocks: the longest request takes 7


class Half:
    """A proposer of three tokens that are right and three that are not."""

    name = "half"
    runs_model = False

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        self.answers = answers

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        coming = [self.answers[one.row][len(one.generated) :] for one in asked]
        return [Draft((*right[:3], 11, 12, 13)[: one.most], "own", 8) for one, right in zip(asked, coming, strict=True)]

    def ended(self, row: int) -> None:
        pass


def bits(told: Told) -> tuple[list[Any], ...]:
    """All that was told of tokens, to the bit."""
    return told.tokens, told.logprobs, told.margins, told.reads, told.given, told.reasons


@pytest.fixture(scope="module")
def mixture() -> list[Request]:
    """Answers that are offered whole, with wrong tokens, not at all; and answers that are only read."""
    prompts, expected = questions(), right_answers()
    plain = asked(prompts)
    offered = [
        replace(plain[at], answer=tuple(drafts_of(expected[at])[way][0]))
        for at, way in enumerate(["whole", "with a wrong token", "longer", "shorter"])
    ]
    read = [Request(prompt=prompts[at], answer=tuple(expected[at + 1])) for at in (0, 4)]
    return [*plain, *offered, *read]


@pytest.fixture(scope="module")
def at_once(mixture) -> dict[Kind, Told]:
    found = {}
    for kind in PACKED:
        with opened(kind, reference(kind)) as engine:
            found[kind] = answered(engine, mixture)
    return found


WAYS: dict[str, dict[str, Any]] = {
    "three sequences, seven rows": {"limits": Limits(rows=7, sequences=3)},
    "one row a pass": {"limits": Limits(rows=1, sequences=1)},
    "two threads": {"threads": 2},
    "few blocks": {"blocks": FEW},
    "few blocks, two threads": {"blocks": FEW, "threads": 2, "limits": Limits(rows=20)},
}
PROOFS = {"two threads", "one row a pass", "few blocks, two threads"}
each = pytest.mark.parametrize("kind", PACKED)


@each
@pytest.mark.parametrize("way", with_proofs(WAYS, PROOFS))
def test_no_bit_depends_on_what_rides_along(kind, way, mixture, at_once):
    with opened(kind, reference(kind), **WAYS[way]) as engine:
        assert bits(answered(engine, mixture)) == bits(at_once[kind])
        assert bits(answered(engine, mixture)) == bits(at_once[kind])  # with the prompts' beginnings in the blocks


@each
def test_no_bit_depends_on_being_alone(kind, mixture, at_once):
    with opened(kind, reference(kind)) as engine:
        alone = [answered(engine, [request]) for request in mixture]
    joined = tuple([one for column in columns for one in column] for columns in zip(*map(bits, alone), strict=True))
    assert joined == bits(at_once[kind])


@each
@pytest.mark.parametrize("how", [{"blocks": FEW}, pytest.param({"threads": 2}, marks=pytest.mark.proof)], ids=str)
def test_no_bit_depends_on_drafts(kind, how, mixture, at_once):
    expected = right_answers()
    with opened(kind, reference(kind), **how) as engine:
        told = answered(engine, mixture, proposer=Half([*expected, *expected[:4], [], []]))
    assert bits(told) == bits(at_once[kind])
    counts = [(end.proposed, end.accepted) for request, end in told.ended.items() if request < len(expected)]
    assert sum(proposed for proposed, _ in counts) > sum(accepted for _, accepted in counts) > 0


def failing(monkeypatch, when, error: Exception) -> None:
    """Passes that `when` says so of, by their parts, end so."""
    real = packed.batch

    def fails(parts: Sequence[Any], blocks: int, **how: Any) -> Any:
        if when(parts):
            raise error
        return real(parts, blocks, **how)

    monkeypatch.setattr(packed, "batch", fails)


def test_a_pass_that_fails_leaves_no_block_that_is_known_and_was_never_filled(mixture, at_once, monkeypatch):
    passes = iter(range(100))
    failing(monkeypatch, lambda _: next(passes) == 0, RuntimeError("a kernel failed"))
    with opened("plain", reference("plain")) as engine:
        with pytest.raises(RuntimeError, match="a kernel failed"):
            answered(engine, mixture)
        assert bits(answered(engine, mixture)) == bits(at_once["plain"])


SHORT = [
    (lambda parts: len(parts) > 5, MemoryError("none left")),
    (
        lambda parts: sum(len(part.tokens) for part in parts) > 2,  # of a single text
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ),
]


@each
@pytest.mark.parametrize(("when", "error"), SHORT, ids=["a pass", "a text"])
def test_a_pass_that_memory_does_not_hold_is_made_in_two(kind, when, error, mixture, at_once, monkeypatch):
    failing(monkeypatch, when, error)
    with opened(kind, reference(kind)) as engine:
        assert bits(answered(engine, mixture)) == bits(at_once[kind])
        assert engine.tally.parted > 0
        failing(monkeypatch, lambda _: True, MemoryError("not one row"))
        with pytest.raises(MemoryError, match="not one row"):
            answered(engine, mixture)


def test_a_request_of_exactly_the_positions_that_fit_runs_and_one_more_is_refused():
    request = asked(questions()[:1])[0]
    fits = replace(request, max_new_tokens=4 * SLOTS + 1 - len(request.prompt))
    with opened("plain", reference("plain"), blocks=4) as engine:
        told = answered(engine, [fits] * 3)
        assert [tokens[:MOST] for tokens in told.tokens] == right_answers()[:1] * 3
        with pytest.raises(MemoryError, match="65 tokens"):
            answered(engine, [fits, replace(fits, max_new_tokens=fits.max_new_tokens + 1)])
        assert answered(engine, [fits]).tokens == told.tokens[:1]
