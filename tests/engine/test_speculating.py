"""An arm that speculates answers as it does without: the same tokens, log-probs and margins, whoever drafts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from qualgate.engine.job import decode_first, run_job, warm_up
from qualgate.engine.loaded import LoadedArm
from qualgate.records import DraftSource, DraftStep, Job, QuantizeRecipe, Sampling, Speculation
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, PLAIN_STEP
from tests.engine.draft_heads.heads import save_eagle3
from tests.engine.engines import PACKED
from tests.engine.jobs import INT2, INT4, MXFP4, NGRAM, SELF_DRAFT, job, said, sampled


def self_draft(recipe: QuantizeRecipe, tokens: int, under: Speculation | None = None) -> Speculation:
    return Speculation(draft=DraftSource(kind="quantize", quantize=recipe, under=under), tokens=tokens)


WAYS = {
    "self-draft": SELF_DRAFT,
    "as many as pay": self_draft(MXFP4, 0),
    "bad draft": self_draft(INT2, 4),
    "n-gram": NGRAM,
    "suffix": Speculation(draft=DraftSource(kind="suffix")),
    "two levels": self_draft(MXFP4, 6, NGRAM),
    "three levels": self_draft(MXFP4, 6, self_draft(INT2, 3, NGRAM)),
}
HEADS = {"head": 4, "head, as many as pay": 0}  # tokens
GREEDY, DRAWN = Sampling(), Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02)


@pytest.fixture(scope="module", params=PACKED)
def arms(request, arms_of):
    return request.param, arms_of(request.param)


@pytest.fixture(scope="module")
def plainly(arms):
    """What a target answers by itself."""
    _, arm = arms
    return cache(lambda target, sampling: bits(arm("variant", target), sampling))


def bits(arm: LoadedArm, sampling: Sampling):
    return said(run_job(arm, asked(arm, sampling)))


def asked(target: LoadedArm, sampling: Sampling) -> Job:
    return sampled(job(target, "", count=8), sampling)


@pytest.fixture(scope="module")
def drafts(tmp_path_factory):
    """By the name of a way."""
    head = DraftSource(kind="head", head=str(save_eagle3(tmp_path_factory.mktemp("heads") / "head", reads=[1])))
    return WAYS | {way: Speculation(draft=head, tokens=tokens) for way, tokens in HEADS.items()}


# A head that reads between layers drafts where these pass through C, which the model of "packed" does not.
NOW = {("packed", "three levels"), *product(["plain"], ["self-draft", "as many as pay", "n-gram", "three levels",
       "head"])}  # fmt: skip
EVERY = [*product(["plain"], [*WAYS, *HEADS]), *product(["packed"], ["three levels", "suffix"])]


def by_depth(cases: Iterable[tuple[str, ...]], now: Collection[tuple[str, ...]]):
    return [pytest.param(*case, marks=() if case in now else pytest.mark.proof) for case in cases]


@pytest.mark.parametrize("target", [None, INT4], ids=["alone", "of a quantized target"])
@pytest.mark.parametrize(("arms", "way"), by_depth(EVERY, NOW), indirect=["arms"])
def test_no_bit_of_an_answer_depends_on_who_drafts(arms, plainly, way, target, drafts):
    _, arm = arms
    drafted = arm("variant", target, speculation=drafts[way])
    for sampling in (GREEDY, DRAWN):
        assert bits(drafted, sampling) == plainly(target, sampling), sampling


def test_what_became_of_each_draft_is_told_by_case_level_and_pass(arms):
    _, arm = arms
    drafted = arm("variant", speculation=WAYS["three levels"])
    work = job(drafted, "", count=8)
    found = run_job(drafted, work)
    assert {one.key for one in found.draft_steps} == {prompt.key for prompt in work.prompts}
    for completion in found.completions:
        mine = [one for one in found.draft_steps if one.key == completion.key and one.level == 1]
        most = sum(one.accepted for one in mine) + len(mine)  # each pass says one of its own, the last perhaps none
        assert most - len(completion.token_ids) in (0, 1)
    assert found.generation.checked > 0 == found.generation.otherwise
    by_pass: dict[tuple[int, int | None], list[DraftStep]] = {}
    for one in found.draft_steps:
        by_pass.setdefault((one.level, one.pass_number), []).append(one)
    assert {level for level, _ in by_pass} == {1, 2, 3}
    assert None not in {number for _, number in by_pass}
    for steps in by_pass.values():
        assert len({one.key for one in steps}) == len(steps), "a sequence has one step a pass"
        assert {one.sequences for one in steps} >= {len(steps)}, "who shares a pass and only reads has no step"
    assert max(one.sequences or 0 for one in found.draft_steps) == len(work.prompts)
    assert {one.overlap for one in found.draft_steps} == {None}, "by the default rule a draw agrees or does not"
    plain = arm("variant", INT4)
    assert run_job(plain, job(plain, "", count=2)).draft_steps == ()


def test_how_often_drafts_rested_and_why_is_told_of_a_job(arms):
    """A step of the draft was timed as dear as a hundred passes of its target."""
    _, arm = arms
    drafted = arm("variant", speculation=WAYS["as many as pay"])
    facts = {name: value for name, value in drafted.footprint.facts.items() if not name.startswith("speculation.")}
    facts |= {PLAIN_STEP: 1e-3} | {f"{DRAFT_STEP_COST}1x{count}": 100.0 for count in (1, 4, 16)}
    facts |= {f"{BATCH_COST}{count}x{rows}": 1 + rows / 100 for count, rows in ((1, 1), (1, 5), (4, 4), (4, 20))}
    drafted = replace(drafted, footprint=replace(drafted.footprint, facts=facts))
    found = run_job(drafted, job(drafted, ""))
    for completion in found.completions:
        mine = [one for one in found.draft_steps if one.key == completion.key]
        assert [one.position for one in mine] == sorted({one.position for one in mine})
        assert sum(one.accepted for one in mine) + len(mine) == len(completion.token_ids), "rested passes are steps too"
    ran = found.generation
    assert 0 < ran.drafting <= ran.passes
    assert ran.rested > 0.9 * ran.drafting
    assert ran.because.startswith("it would not pay if all were accepted: a step takes ")
    fixed = arm("variant", speculation=WAYS["self-draft"])
    ran = run_job(fixed, job(fixed, "")).generation
    assert (ran.drafting > 0, ran.rested, ran.because) == (True, 0, "")
    assert run_job(arm(), job(arm(), "")).generation.drafting == 0


@pytest.mark.parametrize(("rule", "remembers"), [("keyed", True), ("speculative_sampling", False)])
def test_suffixes_draft_from_the_answers_of_earlier_jobs_where_no_token_depends_on_it(arms, rule, remembers):
    _, arm = arms
    drafted = arm("variant", speculation=Speculation(draft=DraftSource(kind="suffix"), tokens=4, rule=rule))
    work = sampled(job(drafted, ""), DRAWN)
    first, again = run_job(drafted, work), run_job(drafted, work)
    assert said(first) == said(again)
    accepted = [sum(one.accepted for one in told.draft_steps) for told in (first, again)]
    tokens = sum(len(one.token_ids) for one in again.completions)
    assert (accepted[1] > 0.6 * tokens > accepted[0]) if remembers else (accepted[0] == accepted[1])


def test_an_arm_speculates_whichever_comes_first_and_is_weighed_as_any_other(arms, tmp_path):
    _, arm = arms
    base, drafted = arm(), arm("variant", INT4, speculation=WAYS["two levels"])
    artifact = tmp_path / "job-0.safetensors"
    warm_up(drafted, job(drafted, artifact))
    first = decode_first(drafted, job(drafted, artifact))
    assert first is not None
    assert first.steps
    run_job(base, job(base, artifact))
    at_once, later = run_job(drafted, job(drafted, artifact)), run_job(drafted, job(drafted, artifact), first)
    assert [one.token_ids for one in at_once.completions] == [one.token_ids for one in later.completions]
    assert at_once.drifts == later.drifts
    assert later.draft_steps == first.steps


@pytest.mark.parametrize("rule", ["keyed", "speculative_sampling"])
def test_an_arm_whose_drafts_have_a_say_in_what_is_drawn_parts_where_its_answers_do(arms, tmp_path, rule):
    """What it would have drawn on the baseline's text is not known: other chances drew there."""
    _, arm = arms
    base, drafted = arm(), arm("variant", INT2, speculation=replace(SELF_DRAFT, rule=rule))
    ours, found = (
        run_job(one, sampled(job(one, tmp_path / "job-0.safetensors"), Sampling(temperature=1.0)))
        for one in (base, drafted)
    )
    parted = 0
    for one, other, drift in zip(ours.completions, found.completions, found.drifts, strict=True):
        pairs = zip(one.token_ids, other.token_ids, strict=False)
        at = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        if at is not None:
            parted += 1
            assert drift.first_divergence == at
    assert parted > 8


RULES = ("speculative_sampling", "block_verification", "typical", "lenient")


RULED = ("self-draft", "bad draft", "n-gram", "three levels", "head")
RULED_NOW = set(product(["plain"], ["three levels", "head"]))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("arms", "way"),
    by_depth([*product(["plain"], RULED), ("packed", "three levels")], RULED_NOW),
    indirect=["arms"],
)
def test_a_rule_s_answers_are_the_same_again_and_greedy_ones_are_the_target_s(arms, plainly, way, rule, drafts):
    _, arm = arms
    drafted = arm("variant", speculation=replace(drafts[way], rule=rule))
    greedy, drawn = (run_job(drafted, asked(drafted, sampling)) for sampling in (GREEDY, DRAWN))
    assert said(greedy) == plainly(None, GREEDY)
    assert said(drawn) == bits(drafted, DRAWN) != plainly(None, DRAWN), "or nothing was ruled"
    assert (drawn.generation.checked, greedy.generation.checked > 0) == (0, True)
    assert {len(tokens) > 0 for tokens, *_ in said(drawn)} == {True}
