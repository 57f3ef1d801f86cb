"""Passes of a fake model: whatever rides along, is drafted, shared, cut or thrown out, answers are those of one token
a pass."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.engine.blocks import BlockPool
from qualgate.engine.request import Request
from qualgate.engine.schedule import Limits, Part, Schedule, Stream
from qualgate_kernels.slots import SLOTS
from tests.depth import examples

VOCABULARY, END = 4, 0
Draft = Callable[[Stream], list[int]]
BASES = tuple(tuple(random.Random(seed).choices(range(VOCABULARY), k=80)) for seed in range(2))


def mixed(state: int, token: int) -> int:
    """All tokens up to one, as a number."""
    return hash((state, token))


def state_of(tokens: Sequence[int]) -> int:
    state = 0
    for token in tokens:
        state = mixed(state, token)
    return state


def next_token(state: int) -> int:
    """What the fake model says: END one time in 11, so that answers have many lengths."""
    return END if state % 11 == 0 else 1 + state // 11 % (VOCABULARY - 1)


def plainly(request: Request) -> list[int]:
    """What it answers, one token at a time, without engine, cache or draft."""
    said = list(request.begun)
    while len(said) < request.max_new_tokens:
        said.append(next_token(state_of([*request.prompt, *said])))
        if said[-1] in request.stop_ids:
            break
    return said


class FakeModel:
    """A pass: every row leaves its state in its slot, and says what follows from its sequence's slots, all of them.

    slots: (block, place in it) → the state before its token, the state after it
    """

    def __init__(self) -> None:
        self.slots: dict[tuple[int, int], tuple[int, int]] = {}

    def copy(self, blocks: Sequence[tuple[int, int]]) -> None:
        before = dict(self.slots)
        for there, here in blocks:
            self.slots |= {(here, at): before[there, at] for at in range(SLOTS) if (there, at) in before}

    def forward(self, parts: Sequence[Part]) -> list[int]:
        """What the wanted rows say."""
        writers: dict[int, Stream] = {}
        for part in parts:
            state = self._state(part.stream, part.first - 1)
            for position, token in enumerate(part.tokens, part.first):
                block = part.stream.blocks[position // SLOTS]
                assert writers.setdefault(block, part.stream) is part.stream, "two write to one block"
                self.slots[block, position % SLOTS] = state, mixed(state, token)
                state = mixed(state, token)
        return [
            next_token(self._state(part.stream, part.first + at))
            for part in parts
            for at in range(len(part.tokens) - part.wants, len(part.tokens))
        ]

    def _state(self, stream: Stream, position: int) -> int:
        state = 0
        for at in range(position + 1):
            before, after = self.slots[stream.blocks[at // SLOTS], at % SLOTS]
            assert before == state, "somebody else wrote to its blocks"
            state = after
        return state


class Engine:
    """The loop around a schedule, without tensors: what was said, what was read, and how each ended."""

    def __init__(self, requests: Sequence[Request], blocks: int, limits: Limits, draft: Draft | None = None) -> None:
        self.requests, self.limits, self.draft = requests, limits, draft
        self.pool, self.model = BlockPool(blocks), FakeModel()
        self.begin()

    def begin(self) -> None:
        """From the beginning, on the pool and the slots as they are."""
        self.schedule = Schedule(self.requests, self.pool, self.limits)
        self.said = [list(request.begun) for request in self.requests]
        self.read: list[list[int]] = [[] for _ in self.requests]
        self.outcomes: list[list[str]] = [[] for _ in self.requests]
        self.passes = self.rows = self.thrown_out = 0

    def run(self, before: Callable[[Engine], None] = lambda _: None) -> None:
        """Pass after pass. before: is called before each."""
        while not self.schedule.done:
            self.passes += 1
            assert self.passes < 10_000, "it gets nowhere"
            before(self)
            for one in self.schedule.taken_out():
                self.outcomes[one.index].append("abort")
            held = {id(one): one for one in self.schedule.going if one.kept}
            draft = self.draft
            parts = self.schedule.next({one.index: draft(one) for one in self.schedule.decoding} if draft else {})
            self.model.copy(self.schedule.copies())
            self.thrown_out += len(held.keys() - {id(one) for one in self.schedule.going})
            self._holds(parts)
            if parts:
                would = self.model.forward(parts)
                self.schedule.passed(parts)
                self._say(parts, would)

    def _holds(self, parts: Sequence[Part]) -> None:
        """What is true of every pass."""
        self.rows += sum(len(part.tokens) for part in parts)
        rows, decoding = (
            sum(len(part.tokens) - part.drafted for part in parts),
            sum(part.stream.decodes for part in parts),
        )
        assert rows <= self.limits.rows or decoding == len(parts)
        assert len(self.schedule.going) <= self.limits.sequences
        assert len({part.stream.index for part in parts}) == len(parts)
        assert self.pool.used == len({block for one in self.schedule.going for block in one.blocks})

    def _say(self, parts: Sequence[Part], would: list[int]) -> None:
        first = 0
        for part in parts:
            one, mine, first = part.stream, would[first : first + part.wants], first + part.wants
            if one.forced:
                self.read[one.index] += mine
                if len(self.read[one.index]) < one.forced:
                    continue
                assert one.wanted == len(one.text)
                offered, mine = one.request.answer, self.read[one.index]
            else:
                assert len(mine) == (1 + part.drafted if one.kept == len(one.text) else 0)
                offered = part.tokens[len(part.tokens) - part.drafted :]
            if not mine:
                continue
            if one.request.max_new_tokens:
                tokens = agreed(one.request, len(one.said), offered, mine)
                self.said[one.index] += tokens
                self.schedule.said(one, tokens)
                if tokens[-1] not in one.request.stop_ids and len(one.said) < one.request.max_new_tokens:
                    continue
            self.outcomes[one.index].append("end")
            self.schedule.end(one)


def agreed(request: Request, said: int, offered: Sequence[int], would: Sequence[int]) -> list[int]:
    """What is said of `would`: one token more as long as the one before it was offered, and was not the last."""
    tokens: list[int] = []
    for place, token in enumerate(would):
        tokens.append(token)
        over = token in request.stop_ids or said + len(tokens) >= request.max_new_tokens
        if over or place >= len(offered) or offered[place] != token:
            break
    return tokens


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
        tokens = plainly(plain)[: draw(st.integers(1, 24))]
    if answer == "wrong":
        place = draw(st.integers(0, len(tokens) - 1))
        tokens[place] = (tokens[place] + 1) % VOCABULARY
    if answer == "other" or not (most or tokens):
        tokens = draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30))
    return Request(prompt=prompt, max_new_tokens=most, stop_ids=stop_ids, answer=tuple(tokens))


@st.composite
def engines(draw) -> Engine:
    asked = draw(st.lists(requests(), min_size=1, max_size=8))
    least = max(-(-request.longest // SLOTS) for request in asked)
    limits = Limits(rows=draw(st.integers(1, 60)), sequences=draw(st.integers(1, 6)))
    return Engine(asked, least + draw(st.integers(0, 12)), limits, draw(st.sampled_from([None, garbage, right])))


def garbage(one: Stream) -> list[int]:
    """A draft that is seldom right, of any length, longer than there is room for."""
    rng = random.Random(len(one.said))
    return rng.choices(range(VOCABULARY), k=rng.randrange(30))


def right(one: Stream) -> list[int]:
    """What it will say, and goes wrong in the end."""
    coming = plainly(one.request)[len(one.said) :]
    return [*coming[: 1 + len(one.said) % 7], VOCABULARY - 1]


def check(engine: Engine) -> None:
    """Every request, once, with the tokens of one a pass; what was read was read at every place, once."""
    for request, said, read, outcome in zip(
        engine.requests, engine.said, engine.read, engine.outcomes, strict=True
    ):  # fmt: skip
        assert outcome == ["end"]
        assert said == plainly(request)
        assert read == [
            next_token(state_of([*request.prompt, *request.answer[:place]])) for place in range(len(request.answer))
        ]
    assert engine.pool.used == 0


@given(engine=engines())
@examples(300)
def test_answers_are_those_of_one_token_a_pass_whatever_the_limits_the_room_and_the_drafts(engine):
    engine.run()
    check(engine)
    engine.begin()  # on blocks that know the prompts
    engine.run()
    check(engine)


@pytest.mark.proof
@given(engine=engines())
@examples(2000)
def test_answers_are_those_of_one_token_a_pass_in_thousands_of_runs(engine):
    engine.run()
    check(engine)


# ------------------------------------------------------------------------------------------- what it costs


def asked(*lengths: int, most: int = 20) -> list[Request]:
    """Prompts of these lengths that have no token in common."""
    return [
        Request(prompt=tuple(range(100 * at, 100 * at + length)), max_new_tokens=most)
        for at, length in enumerate(lengths, 1)
    ]


def test_too_few_blocks_throw_the_youngest_out_who_reads_again_and_says_the_same():
    engine = Engine(asked(60, 50, 40, 30, most=100), 13, Limits(rows=64, sequences=4))
    engine.run()
    check(engine)
    assert engine.thrown_out > 0


def wrong(stream: Stream) -> list[int]:
    """A draft of which nothing is accepted."""
    return [VOCABULARY] * 30


def test_a_draft_throws_nobody_out():
    found = [Engine(asked(60, 50, 40, most=100), 13, Limits(rows=64, sequences=4), draft) for draft in (None, wrong)]
    for engine in found:
        engine.run()
        check(engine)
    assert 0 < found[1].thrown_out <= found[0].thrown_out


def test_nobody_waits_because_others_are_drafted_for():
    went_on: list[int] = []
    engine = Engine(asked(*[10] * 9, most=40), 64, Limits(rows=64, sequences=9), wrong)
    engine.run(lambda one: went_on.append(len(one.schedule.going)))
    check(engine)
    assert max(went_on[:5]) == 9


def test_with_room_for_all_none_reads_twice():
    engine = Engine(asked(60, 50, 40, 30), 64, Limits(rows=64, sequences=4))
    engine.run()
    assert engine.thrown_out == 0
    assert engine.rows == sum(len(request.prompt) + len(said) - 1 for request, said in zip(
        engine.requests, engine.said, strict=True))  # fmt: skip


def test_a_beginning_in_common_is_read_once_by_those_who_come_later_and_at_once():
    prompt = tuple(range(3 * SLOTS + 5))
    engine = Engine([Request(prompt=prompt, max_new_tokens=1)] * 4, 64, Limits(rows=512, sequences=3))
    engine.run()
    check(engine)
    assert engine.rows == len(prompt) + 3 * 5
    engine.begin()
    engine.run()
    assert engine.rows == 4 * 5


def test_a_block_that_begins_alike_is_copied_and_read_from_where_it_differs():
    first, alike = tuple(range(2 * SLOTS + 4)), SLOTS + 7
    other = (*first[:alike], *range(100, 100 + SLOTS))
    requests = [Request(prompt=prompt, max_new_tokens=2) for prompt in (first, other)]
    engine = Engine(requests, 64, Limits(rows=512, sequences=1))
    engine.run()
    check(engine)
    assert engine.rows == len(first) + 1 + len(other) - alike + 1


def test_the_longest_expected_come_first_and_the_next_when_one_ends():
    order: list[int] = []

    def look(engine: Engine) -> None:
        order.extend(one.index for one in engine.schedule.going if one.index not in order)

    requests = [
        Request(prompt=(1,), max_new_tokens=5),
        Request(prompt=(2,), max_new_tokens=30, expected=3),
        Request(prompt=(3,), max_new_tokens=4),
        Request(prompt=(4,) * 9, answer=(1, 2)),
    ]
    Engine(requests, 64, Limits(rows=4, sequences=2)).run(look)
    assert order == [3, 0, 2, 1]


def test_a_request_of_exactly_the_blocks_that_there_are_runs_and_one_position_more_is_refused():
    fits = Request(prompt=(1,) * (2 * SLOTS), max_new_tokens=SLOTS + 1)
    engine = Engine([fits, fits], 3, Limits(rows=5, sequences=2))
    engine.run()
    check(engine)
    with pytest.raises(MemoryError, match=r"49 tokens takes 4 blocks.* 3 fit"):
        Schedule([Request(prompt=(1,) * (2 * SLOTS), max_new_tokens=SLOTS + 2)], BlockPool(3), Limits())


# -------------------------------------------------------------------------------------------- those that are ended


def phase(engine: Engine, index: int) -> str:
    """Where a request is: it waits, reads its prompt or its answer, decodes, or has ended."""
    one = next((one for one in engine.schedule.going if one.index == index), None)
    if one is None:
        return "over" if engine.outcomes[index] else "waits"
    return "decodes" if one.said else "reads its answer" if one.forced and one.kept else "reads"


def some_requests(rng: random.Random) -> list[Request]:
    found = []
    for _ in range(rng.randrange(1, 30)):
        prompt = rng.choice(BASES)[: rng.randrange(1, 50)]
        answer = tuple(rng.choices(range(VOCABULARY), k=rng.choice([0, 0, 5, 20])))
        most = rng.randrange(not answer, 20)
        found.append(Request(prompt=prompt, max_new_tokens=most, answer=answer, stop_ids=frozenset({END})))
    return found


def cancelled(cancels: int) -> Counter[str]:
    """Runs in which requests are ended at random, until so many were: how many, by where they were then."""
    found: Counter[str] = Counter()
    for seed in count():
        rng = random.Random(seed)
        requests = some_requests(rng)
        least = max(-(-request.longest // SLOTS) for request in requests)
        limits = Limits(rows=rng.randrange(1, 60), sequences=rng.randrange(1, 8))
        engine = Engine(requests, least + rng.randrange(8), limits, rng.choice([None, garbage, right]))
        often = rng.choice([0.05, 0.5, 3])  # cancels a pass

        def cancel(engine: Engine, rng=rng, rate=often) -> None:
            for index in {rng.randrange(len(engine.requests)) for _ in range(int(rate + rng.random()))}:
                found[phase(engine, index)] += 1
                engine.schedule.abort(index)

        engine.run(cancel)
        assert engine.pool.used == 0
        for request, said, outcome in zip(engine.requests, engine.said, engine.outcomes, strict=True):
            assert len(outcome) == 1
            whole = plainly(request)
            assert said == whole[: len(said)]
            assert outcome == ["abort"] or said == whole
        if found.total() - found["over"] >= cancels:
            return found
    raise AssertionError


@pytest.mark.parametrize("cancels", [3000, pytest.param(100_000, marks=pytest.mark.proof)])
def test_random_cancels_leave_no_block_used_and_one_outcome_each(cancels):
    found = cancelled(cancels)
    assert set(found) == {"waits", "reads", "reads its answer", "decodes", "over"}
    assert min(found.values()) > cancels / 100


def test_an_abort_is_heard_before_the_next_pass_and_only_of_who_is_there():
    engine = Engine(asked(20, 20), 64, Limits())

    def cancel(engine: Engine) -> None:
        engine.schedule.abort(7)
        if engine.passes == 3:
            engine.schedule.abort(1)
            engine.schedule.abort(1)
        assert engine.passes < 4 or engine.outcomes[1] == ["abort"]

    engine.run(cancel)
    assert engine.outcomes == [["end"], ["abort"]]
    assert len(engine.said[1]) == 2


def test_a_text_that_has_just_left_its_last_block_is_lent_none_that_is_not_free():
    """Sixteen tokens fill the one block there is for each; the seventeenth is not drafted behind."""
    schedule = Schedule([Request(prompt=(1,) * SLOTS, max_new_tokens=2)], BlockPool(2), Limits())
    [part] = schedule.next()
    schedule.passed([part])
    schedule.said(part.stream, [1])
    assert len(part.stream.blocks) == 1
    taken = schedule.pool.take()
    assert schedule.lend(0, SLOTS + 1) is None
    schedule.pool.release([taken])
    assert schedule.lend(0, SLOTS) == part.stream.blocks
