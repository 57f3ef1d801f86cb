"""The control of drafts on a clock of its own: against plain passes, and against every fixed length of drafts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

import pytest

from qualgate.engine.drafting import Drafting
from qualgate.engine.speculation.lengths import MOST_RESTS, RESTS, Learned
from qualgate.engine.speculation.looks import ALLOWED, TRIED
from qualgate.engine.speculation.ngram import Ngram
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest
from qualgate.engine.speculation.remaining import Remaining
from qualgate.engine.speculation.steps import Drafts
from tests.depth import with_proofs
from tests.engine.drafting_world import Costs, Row, Task, World, rows_of, seconds

PASS = 10e-3
EASY = Task(name="easy", hard=0.02, lengths=(40, 160))
MIXED = Task(name="mixed", hard=0.2, lengths=(40, 160))
BAD = Task(name="bad", hard=1.0, lengths=(40, 160))
SHORT = Task(name="short", hard=0.05, lengths=(4, 20), prompt=120)
ROWS_DIFFER = Task(name="rows differ", hard=0.1, lengths=(30, 200), bad_rows=3)
FIXED = (1, 2, 3, 4, 6, 8, 12)


def costs(step: float = 0.35, row: float = 0.02, reading: float = 0.1) -> Costs:
    """In passes of the target. row: of each further one, of the target and of a step."""
    return Costs(
        target=lambda texts, rows: PASS * (1 + row * (rows - 1)),
        draft=lambda texts, rows: PASS * (step + row * (rows - 1)),
        reading=PASS * reading,
    )


def in_eights(texts: int, rows: int) -> float:
    """Of kernels that take eight rows at a time."""
    return PASS * (0.8 + 0.2 * -(-rows // 8) + 0.02 * rows)


def gains(of: Costs, batch: int, tasks: list[Task], each: int, fixed: Sequence[int] = FIXED) -> tuple[float, float]:
    """How many times as fast as plain passes: as many tokens as pay, and the best fixed number of them."""
    rows: list[Row] = rows_of(tasks, each)
    world: Callable[[], World] = lambda: World(of, batch)  # noqa: E731
    plain, _ = seconds(world, rows, None)
    best = min([plain, *(seconds(world, rows, tokens)[0] for tokens in fixed)])
    return plain / seconds(world, rows, 0)[0], plain / best


FASTER = {
    "easy": (costs(), [EASY], 20, 1.0),
    "tokens differ": (costs(), [MIXED], 80, 1.05),
    "rows differ": (costs(), [ROWS_DIFFER], 100, 1.05),
    "tasks differ": (costs(), [EASY, MIXED, BAD, SHORT], 12, 1.05),
    "tasks differ, cheap drafts": (costs(0.05, 0.01, 0.005), [EASY, MIXED, BAD, SHORT], 6, 1.05),
}


@pytest.mark.parametrize("name", with_proofs(FASTER, {"tokens differ", "rows differ", "tasks differ"}))
def test_it_is_faster_than_every_fixed_length_where_rows_differ(name):
    of, tasks, each, over = FASTER[name]
    mine, fixed = gains(of, 1, tasks, each)
    assert mine >= over * fixed


SLOW = {
    "hardly accepted": (costs(), [BAD]),
    "dear": (costs(1.0), [EASY, MIXED]),
    "dear rows": (costs(0.8, 0.2), [EASY, MIXED]),
    "short answers": (costs(), [SHORT]),
    "tasks differ": (costs(), [EASY, MIXED, BAD, SHORT]),
    "in eights": (Costs(target=in_eights, draft=in_eights, reading=PASS / 20), [EASY, BAD]),
}


@pytest.mark.parametrize("batch", with_proofs([1, 4, 16, 64], {4, 64}))
@pytest.mark.parametrize("name", SLOW)
def test_it_is_never_slower_than_plain_passes_by_two_per_cent(name, batch):
    of, tasks = SLOW[name]
    mine, _ = gains(of, batch, tasks, 40 if len(tasks) < 3 else 20, fixed=())
    assert mine >= 0.98


def test_what_does_not_pay_is_off_within_few_passes_and_a_run_repeats():
    rows = rows_of([BAD], 10)
    _, steps = seconds(lambda: World(costs(), 1), rows, 0)
    assert sum(one.proposed > 0 for one in steps) < 0.03 * len(steps)
    first, again = (seconds(lambda: World(costs(), 4), rows_of([EASY, BAD], 6), 0) for _ in range(2))
    assert first == again


class Looked:
    """Who looks drafts up, right or wrong; asked: how often."""

    name, runs_model = "looked up", False

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self.tokens, self.asked = tokens, 0

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        self.asked += 1
        return [Draft(self.tokens, self.name, 8) if self.tokens else NO_DRAFT for _ in asked]

    def ended(self, row: int) -> None:
        pass


class Model(Looked):
    """Who runs a model, of which this proposer knows nothing but what it says."""

    name, runs_model = "model", True


def learned(right: int, kind: str) -> Learned:
    found = Learned()
    found.seed({(1, 1): 10e-3, (1, 3): 10.2e-3})
    found.lengths("model").seed({1: 4e-3}, 0.0)
    for _ in range(200):
        found.acceptance.observe(Draft((1,), kind, 8), [right])
    return found


def asked(said: int = 1) -> list[DraftRequest]:
    return [DraftRequest(0, (1, 2, 3), [1] * said, 20)]


def test_a_level_that_does_not_pay_is_left_out_for_one_below_it_that_does():
    model, looked = Model((1, 1)), Looked((1, 1, 1))
    knows = learned(0, "model")
    drafting = Drafting(Drafts(model, learned=knows, instead=(looked,)), lambda: 0.0)
    assert drafting.draft(asked(), 1) == {0: (1, 1, 1)}
    assert model.asked == 0
    steps = []
    both = Drafting(Drafts(model, 0, steps, knows, instead=(looked,)), lambda: 0.0)
    offered = both.draft(asked(), 1)
    both.record(0, 1, len(offered[0]), (1, 1, 1, 5), 3)
    assert [one.proposer for one in steps] == ["looked up"]


def test_a_model_that_pays_more_than_what_is_looked_up_drafts():
    model, looked = Model((1,) * 8), Looked((7,))
    knows = learned(1, "model")
    for _ in range(50):
        knows.acceptance.observe(Draft((1,), "looked up", 8), [0])
    drafting = Drafting(Drafts(model, learned=knows, instead=(looked,)), lambda: 0.0)
    assert len(drafting.draft(asked(), 1)[0]) == 8


def test_where_nobody_pays_some_passes_go_by_without_a_look_and_are_counted_with_the_cause():
    model = Model((1,))
    knows = learned(0, "model")
    drafts = Drafts(model, learned=knows)
    drafting = Drafting(drafts, lambda: 0.0)
    assert not drafting.rests(1)
    assert drafting.draft(asked(), 1) == {}
    assert drafting.because
    assert all(drafting.rests(1) for _ in range(RESTS))
    assert not drafting.rests(1)
    assert drafting.draft(asked(), 1) == {}
    assert drafting.rests(1)
    assert (drafts.rests.passes, drafts.rests.rested) == (RESTS + 3, RESTS + 3), "a look that finds nobody is one"
    assert drafts.rests.because == drafting.because
    assert not drafting.rests(2), "of another batch it is not known"
    assert (drafts.rests.passes, drafts.rests.rested) == (RESTS + 4, RESTS + 3)


def test_passes_that_rested_have_a_plain_step_each_and_their_tokens_are_counted():
    steps, knows = [], learned(0, "model")
    drafting = Drafting(Drafts(Model((1,)), 0, steps, knows, tasks=["task"]), lambda: 0.0)
    for position in range(40):
        if not drafting.rests(1):
            drafting.draft(asked(position), 1)
            drafting.record(0, position, 0, (1,), 0)
            drafting.passed(1, 1, 10e-3)
        else:
            drafting.untold.setdefault(0, position)
    drafting.ended(0, 40)
    assert [(one.position, one.proposed, one.proposer) for one in steps] == [(at, 0, "") for at in range(40)]
    told = Remaining()
    told.observe("task", 0, 40)
    told.ended("task", 40)
    assert [knows.remaining.tokens("task", at, 100) for at in (0, 39)] == [
        told.tokens("task", at, 100) for at in (0, 39)
    ]


def test_a_look_that_takes_long_beside_a_pass_is_followed_by_a_long_rest():
    for look, rested in ((0.0, RESTS), (10e-3, 100), (1.0, MOST_RESTS)):
        began = iter((0.0, look))
        drafting = Drafting(Drafts(Model((1,)), learned=learned(0, "model")), lambda began=began: next(began))
        assert not drafting.rests(1)
        assert drafting.draft(asked(), 1) == {}
        count = next(count for count in range(MOST_RESTS + 2) if not drafting.rests(1))
        assert count == pytest.approx(rested, rel=0.05)


def test_a_rest_goes_on_in_the_next_run_and_while_its_prompt_is_read():
    knows = learned(0, "model")
    drafting = Drafting(Drafts(Model((1,)), learned=knows), lambda: 0.0)
    assert not drafting.rests(1)
    assert drafting.draft(asked(), 1) == {}
    drafts = Drafts(Model((1,)), learned=knows)
    drafting = Drafting(drafts, lambda: 0.0)
    assert not drafting.rests(0)
    assert drafting.draft([], 0) == {}
    assert all(drafting.rests(1) for _ in range(RESTS))
    assert drafts.rests.because != ""
    assert not drafting.rests(1)


def test_passes_that_leave_what_was_looked_up_unverified_rest_too_and_those_that_draft_do_not():
    knows = learned(0, "model")
    for _ in range(200):
        knows.acceptance.observe(Draft((1,), "looked up", 8), [0])
        knows.costs.observe(1, 3, 30e-3)
    drafts = Drafts(Model((1, 1)), learned=knows, instead=(Looked((7,)),))
    drafting = Drafting(drafts, lambda: 0.0)
    assert not drafting.rests(1)
    assert list(drafting.draft(asked(), 1).values()) == [()]
    assert (drafts.rests.passes, drafts.rests.rested) == (1, 1)
    assert drafts.rests.because == knows.lengths("model").because != ""
    pays = Drafts(Model((1,) * 8), learned=learned(1, "model"))
    drafting = Drafting(pays, lambda: 0.0)
    assert not drafting.rests(1)
    assert len(drafting.draft(asked(), 1)[0]) == 8
    assert (pays.rests.passes, pays.rests.rested) == (1, 0)


def test_what_is_looked_up_and_not_verified_is_judged_by_what_is_said():
    looked = Looked((1, 1))
    knows = learned(0, "looked up")
    for _ in range(100):
        knows.costs.observe(1, 3, 30e-3)
    drafting = Drafting(Drafts(looked, learned=knows), lambda: 0.0)
    before = knows.acceptance.tested("looked up")
    assert list(drafting.draft(asked(), 1).values()) == [()]
    drafting.record(0, 1, 0, (1,), 0)
    assert knows.acceptance.tested("looked up") == before + 1


# ------------------------------------------------------------------------------------------------ n-grams alone

LOOK = 50e-6  # s, of each on this clock


def looking_up(text: list[int], a_pass: float) -> tuple[Drafts, int]:
    """The drafts of an answer, and passes that it took."""
    drafts, passes, said = Drafts(Ngram(), 0, []), 0, 0
    drafting = Drafting(drafts, count(LOOK, LOOK).__next__)  # each look is between two of these
    while said < len(text):
        passes += 1
        rests = drafting.rests(1)
        offered = (
            () if rests else drafting.draft([DraftRequest(0, (1, 2), text[:said], len(text) - said)], 1).get(0, ())
        )
        right = next((at for at, one in enumerate(offered) if one != text[said + at]), len(offered))
        tokens = text[said : said + right + 1]
        if rests:
            drafting.untold.setdefault(0, said)
        else:
            drafting.begins(1)
            drafting.record(0, said, len(offered), tuple(tokens), min(right, len(tokens)))
            drafting.passed(1, 1 + len(offered), a_pass * (1 + 0.2 * len(offered)))
        said += len(tokens)
    drafting.ended(0, said)
    return drafts, passes


NEVER_TWICE = list(range(10, 3_010))


def test_where_nothing_is_said_twice_looks_take_little_more_than_they_may():
    drafts, passes = looking_up(NEVER_TWICE, 200e-6)
    assert passes == len(NEVER_TWICE)
    looks = passes - drafts.rests.rested
    assert 2 * LOOK * (looks - TRIED) < 1.5 * ALLOWED * passes * 200e-6
    assert drafts.rests.because == "to look for drafts takes longer than they save"
    assert drafts.steps is not None
    assert [one.position for one in drafts.steps] == list(range(passes)), "each pass has its step, rested or not"


@pytest.mark.parametrize(("text", "a_pass"), [([5, 6, 7, 8] * 500, 200e-6), (NEVER_TWICE, 50e-3)])
def test_none_is_left_out_where_they_pay_or_take_next_to_nothing(text, a_pass):
    drafts, passes = looking_up(text, a_pass)
    assert drafts.rests.rested == 0
    assert (passes < len(text) / 4) is (text is not NEVER_TWICE)
