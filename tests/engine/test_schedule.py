"""Passes of a fake model: whatever rides along, is drafted, shared, cut or thrown out, answers are those of one token
a pass."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.batch import Batch
from qualgate.engine.blocks import BlockPool
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits, Schedule
from qualgate.engine.speculation.propose import Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts
from qualgate_kernels.slots import SLOTS
from tests.depth import examples
from tests.engine.engines import Told
from tests.engine.fake_decoder import END, VOCABULARY, FakeDecoder, fake_engine, plainly, says

BASES = tuple(tuple(random.Random(seed).choices(range(VOCABULARY), k=80)) for seed in range(2))


Way = Callable[[Request, Sequence[int]], list[int]]


class Drafting:
    """A proposer of what `way` says of the request that a row has, and of what it said."""

    name, runs_model = "way", False

    def __init__(self, requests: Sequence[Request], way: Way) -> None:
        self.requests, self.way = requests, way

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft(tuple(self.way(self.requests[one.row], one.generated)), "way", 8) for one in asked]

    def ended(self, row: int) -> None:
        pass


def garbage(request: Request, said: Sequence[int]) -> list[int]:
    """A draft that is seldom right, of any length, longer than there is room for."""
    rng = random.Random(len(said))
    return rng.choices(range(VOCABULARY), k=rng.randrange(30))


def right(request: Request, said: Sequence[int]) -> list[int]:
    """What it will say, and goes wrong in the end."""
    return [*answer_of(request)[len(said) :][: 1 + len(said) % 7], VOCABULARY - 1]


def wrong(request: Request, said: Sequence[int]) -> list[int]:
    """A draft of which nothing is accepted."""
    return [VOCABULARY] * 30


def answer_of(request: Request) -> list[int]:
    """One token at a time."""
    begun, most = request.begun, request.max_new_tokens - len(request.begun)
    return [*begun, *plainly([*request.prompt, *begun], most, ends=tuple(request.stop_ids))]


@dataclass(eq=False)
class Watched(FakeDecoder):
    """watch: is called in each pass."""

    watch: Callable[[], None] = lambda: None

    def forward(self, batch: Batch, states: Any, threads: int) -> torch.Tensor:
        self.watch()
        return super().forward(batch, states, threads)


class Run:
    """Requests on an engine of so many blocks, drafted for in some way. look: is called in each pass."""

    def __init__(
        self,
        requests: Sequence[Request],
        blocks: int,
        limits: Limits,
        way: Way | None = None,
        look: Callable[[Run, Schedule], None] = lambda *_: None,
    ) -> None:
        self.requests, self.way, self.look = requests, way, look
        self.decoder = Watched(watch=self._watch)
        self.engine = fake_engine(self.decoder, blocks=blocks, limits=limits)

    def go(self) -> Run:
        """From the beginning, on the blocks as they are."""
        self.told = Told.nothing(len(self.requests))
        for tokens, request in zip(self.told.tokens, self.requests, strict=True):
            tokens += request.begun
        self.thrown_out, self._going = 0, set[int]()
        self.decoder.passes.clear()
        drafts = Drafts(Drafting(self.requests, self.way), 30) if self.way else None
        self.engine.run(self.requests, drafts, self.told.hear)
        assert sorted(self.told.ended) == list(range(len(self.requests)))
        assert self.engine._pool.used == 0
        return self

    @property
    def rows(self) -> int:
        return sum(self.decoder.passes)

    def _watch(self) -> None:
        schedule = self.engine._schedule
        assert schedule is not None
        assert len(self.decoder.passes) < 10_000, "it gets nowhere"
        going = {one.index for one in schedule.going}
        self.thrown_out += len(self._going - going - self.told.ended.keys())
        self._going = going
        self.look(self, schedule)


def check(run: Run) -> None:
    """Every request, once, with the tokens of one a pass; what was read was read at every place, once."""
    assert "abort" not in run.told.reasons
    for request, tokens, read in zip(run.requests, run.told.tokens, run.told.reads, strict=True):
        assert tokens == answer_of(request)
        assert [said for _, said, _ in read] == [
            says([*request.prompt, *request.answer[:place]]) for place in range(len(request.answer))
        ]


# -------------------------------------------------------------------------------------------- what may be asked


@st.composite
def requests(draw) -> Request:
    base = draw(st.sampled_from(BASES))
    rest = draw(st.lists(st.integers(0, VOCABULARY - 1), max_size=3))
    prompt = (*base[: draw(st.integers(1, 50))], *rest)
    stop_ids = frozenset({END} if draw(st.booleans()) else ())
    most = draw(st.integers(0, 24))
    plain = Request(prompt=prompt, max_new_tokens=max(1, most), stop_ids=stop_ids)
    answer = draw(st.sampled_from(["none", "right", "wrong", "other", "begun"]))
    if answer == "begun" and most > 1:
        begun = draw(st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=most - 1))
        return replace(plain, begun=tuple(begun))
    tokens: list[int] = []
    if answer in ("right", "wrong"):
        tokens = answer_of(plain)[: draw(st.integers(1, 24))]
    if answer == "wrong":
        place = draw(st.integers(0, len(tokens) - 1))
        tokens[place] = (tokens[place] + 1) % VOCABULARY
    if answer == "other" or not (most or tokens):
        tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30))
    return Request(prompt=prompt, max_new_tokens=most, stop_ids=stop_ids, answer=tuple(tokens))


@st.composite
def runs(draw) -> Run:
    asked = draw(st.lists(requests(), min_size=1, max_size=8))
    least = max(-(-request.longest // SLOTS) for request in asked)
    limits = Limits(rows=draw(st.integers(1, 60)), sequences=draw(st.integers(1, 6)))
    return Run(asked, least + draw(st.integers(0, 12)), limits, draw(st.sampled_from([None, garbage, right])))


@given(run=runs())
@examples(100)
def test_answers_are_those_of_one_token_a_pass_whatever_the_limits_the_room_and_the_drafts(run):
    check(run.go())
    check(run.go())  # on blocks that know the prompts


# ------------------------------------------------------------------------------------------- what it costs


def asked(*lengths: int, most: int = 20) -> list[Request]:
    """Prompts of these lengths that have no token in common."""
    return [
        Request(prompt=tuple(range(100 * at, 100 * at + length)), max_new_tokens=most)
        for at, length in enumerate(lengths, 1)
    ]


def test_too_few_blocks_throw_the_youngest_out_who_reads_again_and_no_draft_throws_anybody_out():
    found = [Run(asked(60, 50, 40, most=100), 13, Limits(rows=64, sequences=4), way).go() for way in (None, wrong)]
    for run in found:
        check(run)
    assert 0 < found[1].thrown_out <= found[0].thrown_out


def test_nobody_waits_because_others_are_drafted_for():
    went_on: list[int] = []
    run = Run(
        asked(*[10] * 9, most=40), 64, Limits(rows=64, sequences=9), wrong,
        lambda _, schedule: went_on.append(len(schedule.going)),
    )  # fmt: skip
    check(run.go())
    assert max(went_on[:5]) == 9


def test_with_room_for_all_none_reads_twice():
    run = Run(asked(60, 50, 40, 30), 64, Limits(rows=64, sequences=4)).go()
    assert run.thrown_out == 0
    assert run.rows == sum(
        len(request.prompt) + len(said) - 1 for request, said in zip(run.requests, run.told.tokens, strict=True)
    )


def test_a_beginning_in_common_is_read_once_by_those_who_come_later_and_at_once():
    prompt = tuple(range(3 * SLOTS + 5))
    run = Run([Request(prompt=prompt, max_new_tokens=1)] * 4, 64, Limits(rows=512, sequences=3)).go()
    check(run)
    assert run.rows == len(prompt) + 3 * 5
    assert run.go().rows == 4 * 5


def test_a_block_that_begins_alike_is_copied_and_read_from_where_it_differs():
    first, alike = tuple(range(2 * SLOTS + 4)), SLOTS + 7
    other = (*first[:alike], *range(100, 100 + SLOTS))
    requests = [Request(prompt=prompt, max_new_tokens=2) for prompt in (first, other)]
    run = Run(requests, 64, Limits(rows=512, sequences=1)).go()
    check(run)
    assert run.rows == len(first) + 1 + len(other) - alike + 1


def test_the_longest_expected_come_first_and_the_next_when_one_ends():
    order: list[int] = []
    requests = [
        Request(prompt=(1,), max_new_tokens=5),
        Request(prompt=(2,), max_new_tokens=30, expected=3),
        Request(prompt=(3,), max_new_tokens=4),
        Request(prompt=(4,) * 9, answer=(1, 2)),
    ]
    Run(
        requests, 64, Limits(rows=4, sequences=2), None,
        lambda _, schedule: order.extend(one.index for one in schedule.going if one.index not in order),
    ).go()  # fmt: skip
    assert order == [3, 0, 2, 1]


def test_a_request_of_exactly_the_blocks_that_there_are_runs_and_one_position_more_is_refused():
    fits = Request(prompt=(1,) * (2 * SLOTS), max_new_tokens=SLOTS + 1)
    check(Run([fits, fits], 3, Limits(rows=5, sequences=2)).go())
    with pytest.raises(MemoryError, match=r"49 tokens takes 4 blocks.* 3 fit"):
        Run([fits, replace(fits, max_new_tokens=SLOTS + 2)], 3, Limits()).go()


# -------------------------------------------------------------------------------------------- those that are ended


@given(run=runs(), seed=st.integers(0, 2**20), often=st.sampled_from([0.05, 0.5, 3]))
@examples(100)
def test_random_cancels_leave_no_block_used_and_one_outcome_each(run, seed, often):
    """While requests wait, read their prompt or their answer, decode, or are over: so many a pass."""
    rng = random.Random(seed)

    def cancel(run: Run, _: Schedule) -> None:
        for index in {rng.randrange(len(run.requests)) for _ in range(int(often + rng.random()))}:
            run.engine.abort(index)

    run.look = cancel
    run.go()
    for request, said, reason in zip(run.requests, run.told.tokens, run.told.reasons, strict=True):
        whole = answer_of(request)
        assert said == whole[: len(said)]
        assert reason == "abort" or said == whole


def test_an_abort_is_heard_before_the_next_pass_and_only_of_who_is_there():
    def cancel(run: Run, _: Schedule) -> None:
        run.engine.abort(7)
        if len(run.decoder.passes) == 2:
            run.engine.abort(1)
            run.engine.abort(1)
        assert len(run.decoder.passes) < 3 or run.told.ended[1].reason == "abort"

    run = Run(asked(20, 20), 64, Limits(), look=cancel).go()
    assert run.told.reasons == ["length", "abort"]
    assert len(run.told.tokens[1]) == 3


def test_a_text_that_has_just_left_its_last_block_is_lent_none_that_is_not_free():
    """Sixteen tokens fill the one block there is for each; the seventeenth is not drafted behind."""
    schedule = Schedule([Request(prompt=(1,) * SLOTS, max_new_tokens=2)], BlockPool(2), Limits())
    [part] = schedule.next()
    schedule.passed([part])
    schedule.extend(part.stream, [1])
    assert len(part.stream.blocks) == 1
    taken = schedule.pool.take()
    assert schedule.lend(0, SLOTS + 1) is None
    schedule.pool.release([taken])
    assert schedule.lend(0, SLOTS) == part.stream.blocks
