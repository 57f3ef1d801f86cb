"""An arm that speculates answers as it does without: the same tokens, log-probs and margins, whoever drafts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from qualgate.engine.draft_heads.folder import Layout
from qualgate.engine.draft_heads.loading import save_head, target_of
from qualgate.engine.draft_heads.texts import read_texts
from qualgate.engine.draft_heads.training import Lessons, learned
from qualgate.engine.job import decode_first, run_job, warm_up
from qualgate.engine.load import LoadedArm
from qualgate.records import DraftSource, DraftStep, Job, JobResult, QuantizeRecipe, Sampling, Speculation
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, PLAIN_STEP
from tests.engine.jobs import INT4, INT8, arms_under, job

MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
INT2 = QuantizeRecipe(method="int2", group_size=32)
NGRAM = Speculation(draft=DraftSource(kind="ngram"), tokens=3)
WAYS = {
    "self-draft": Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4), tokens=5),
    "as many as pay": Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4)),
    "bad draft": Speculation(draft=DraftSource(kind="quantize", quantize=INT2), tokens=4),
    "n-gram": NGRAM,
    "suffix": Speculation(draft=DraftSource(kind="suffix")),
    "two levels": Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4, under=NGRAM), tokens=6),
    "three levels": Speculation(
        draft=DraftSource(
            kind="quantize",
            quantize=MXFP4,
            under=Speculation(draft=DraftSource(kind="quantize", quantize=INT2, under=NGRAM), tokens=3),
        ),
        tokens=6,
    ),
}
EARLY = {
    "early exit": Speculation(draft=DraftSource(kind="early_exit", layers=1), tokens=3),
    "early exit of a draft": Speculation(
        draft=DraftSource(
            kind="quantize", quantize=MXFP4, under=Speculation(draft=DraftSource(kind="early_exit", layers=1), tokens=2)
        ),
        tokens=4,
    ),
}
HIGH = {
    "high bits": Speculation(draft=DraftSource(kind="high_bits", bits=4), tokens=5),
    "high bits, as many as pay": Speculation(draft=DraftSource(kind="high_bits", bits=4)),
    "first layers of the high bits": Speculation(
        draft=DraftSource(
            kind="high_bits",
            bits=4,
            under=Speculation(draft=DraftSource(kind="early_exit", layers=1, under=NGRAM), tokens=3),
        ),
        tokens=5,
    ),
    "high bits of a draft": Speculation(
        draft=DraftSource(
            kind="quantize",
            quantize=INT8,
            under=Speculation(draft=DraftSource(kind="high_bits", bits=4), tokens=2),
        ),
        tokens=4,
    ),
}
HEADS: dict[str, tuple[Layout, int]] = {
    "head": ("eagle", 4),
    "head, as many as pay": ("eagle", 0),
    "medusa heads": ("medusa", 4),
    "parallel head": ("parallel", 3),
    "parallel head, as many as pay": ("parallel", 0),
}
GREEDY, DRAWN = Sampling(), Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.02)


@pytest.fixture(scope="module", params=["plain", "packed"])
def arms(request, tmp_path_factory):
    """Each arm is loaded once, and answers every job that it is asked."""
    return request.param, cache(arms_under(request.param, tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def plainly(arms):
    """What a target answers by itself."""
    _, arm = arms
    return cache(lambda target, sampling: bits(arm("variant", target), asked(arm("variant", target), sampling)))


def asked(target: LoadedArm, sampling: Sampling) -> Job:
    work = job(target, "")
    return replace(work, prompts=tuple(replace(one, sampling=sampling) for one in work.prompts), seed=3)


def bits(arm: LoadedArm, work: Job):
    return said(run_job(arm, work))


def said(told: JobResult):
    return [(one.token_ids, one.logprobs, one.margins, one.finish_reason) for one in told.completions]


@pytest.fixture(scope="module")
def heads(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("heads")


def by_head(folder: Path, target: LoadedArm, layout: Layout, tokens: int) -> Speculation:
    """By a head that learned a little of this very target."""
    folder = folder.with_name(f"{folder.name}-{layout}")
    if not (folder / "config.json").exists():
        lessons = Lessons(layout=layout, tokens=4, steps=12)
        texts = read_texts(target, [((7, 8, 9, at), range(at, at + 30)) for at in range(20)])
        shape, tensors = learned(target, texts, lessons, lambda *_: None)
        save_head(folder, layout, lessons.tokens, shape, tensors, target_of(target.spec, target.identity), {})
    return Speculation(draft=DraftSource(kind="head", head=str(folder)), tokens=tokens)


# The first layers alone, and half of the codes alone, pass through C, where the model of "packed" does not.
in_c = pytest.mark.parametrize("arms", ["plain"], indirect=True)
KINDS = ["plain", pytest.param("packed", marks=pytest.mark.proof)]
EVERY = [
    *product(["plain"], [*WAYS, *HEADS, *EARLY]),
    *(pytest.param("packed", way, marks=pytest.mark.proof) for way in (*WAYS, *HEADS)),
]


@pytest.mark.parametrize("target", [None, INT4], ids=["alone", "of a quantized target"])
@pytest.mark.parametrize(("arms", "way"), EVERY, indirect=["arms"])
def test_no_bit_of_an_answer_depends_on_who_drafts(arms, plainly, way, target, heads):
    kind, arm = arms
    found = {**WAYS, **EARLY}.get(way) or by_head(
        heads / f"{kind}-{target is None}", arm("variant", target), *HEADS[way]
    )
    drafted = arm("variant", target, speculation=found)
    for sampling in (GREEDY, DRAWN):
        assert bits(drafted, asked(drafted, sampling)) == plainly(target, sampling), sampling


@in_c
@pytest.mark.parametrize("way", HIGH)
def test_no_bit_of_an_int8_answer_depends_on_its_high_bits_drafting(arms, plainly, way):
    _, arm = arms
    drafted = arm("variant", INT8, speculation=HIGH[way])
    for sampling in (GREEDY, DRAWN):
        told = run_job(drafted, asked(drafted, sampling))
        assert said(told) == plainly(INT8, sampling), sampling
        first = [one for one in told.draft_steps if one.level == 1]
        proposed, accepted = sum(one.proposed for one in first), sum(one.accepted for one in first)
        if HIGH[way].draft.kind == "high_bits" and HIGH[way].tokens:
            assert accepted > proposed / 4, "the upper half of its codes is near to it"


@in_c
@pytest.mark.parametrize("rule", ["speculative_sampling", "block_verification", "typical"])
def test_high_bits_draft_under_every_rule_and_say_the_same_twice(arms, plainly, rule):
    _, arm = arms
    drafted = arm("variant", INT8, speculation=replace(HIGH["high bits"], rule=rule))
    drawn = asked(drafted, DRAWN)
    assert bits(drafted, drawn) == bits(drafted, drawn)
    assert bits(drafted, asked(drafted, GREEDY)) == plainly(INT8, GREEDY), "at temperature 0 it is the model's own"


def test_what_became_of_each_draft_is_told_by_case_and_level(arms):
    _, arm = arms
    drafted = arm("variant", speculation=WAYS["three levels"])
    work = job(drafted, "")
    found = run_job(drafted, work)
    assert {one.level for one in found.draft_steps} == {1, 2, 3}
    assert {one.key for one in found.draft_steps} == {prompt.key for prompt in work.prompts}
    for completion in found.completions:
        mine = [one for one in found.draft_steps if one.key == completion.key and one.level == 1]
        most = sum(one.accepted for one in mine) + len(mine)  # each pass says one of its own, the last perhaps none
        assert most - len(completion.token_ids) in (0, 1)
    assert found.generation.checked > 0 == found.generation.otherwise


def test_every_step_tells_its_pass_and_how_many_sequences_shared_it(arms):
    _, arm = arms
    drafted = arm("variant", speculation=WAYS["two levels"])
    work = job(drafted, "")
    found = run_job(drafted, work)
    for level in (1, 2):
        by_pass: dict[int | None, list[DraftStep]] = {}
        for one in found.draft_steps:
            if one.level == level:
                by_pass.setdefault(one.pass_number, []).append(one)
        assert None not in by_pass
        for steps in by_pass.values():
            assert len({one.key for one in steps}) == len(steps), "a sequence has one step a pass"
            assert {one.sequences for one in steps} >= {len(steps)}, "who shares a pass and only reads has no step"
    assert max(one.sequences or 0 for one in found.draft_steps) == len(work.prompts)
    assert {one.overlap for one in found.draft_steps} == {None}, "by the default rule a draw agrees or does not"


@pytest.mark.parametrize("way", ["self-draft", "bad draft", "three levels"])
def test_by_a_rule_of_chance_as_many_are_accepted_as_their_distributions_overlap(arms, way):
    _, arm = arms
    drafted = arm("variant", speculation=replace(WAYS[way], rule="speculative_sampling"))
    work = asked(drafted, Sampling(temperature=1.0))
    accepted = tested = overlap = 0.0
    for seed in range(6):
        for one in run_job(drafted, replace(work, seed=seed)).draft_steps:
            assert (one.overlap is None) == (not one.accepted + one.rejected)
            if one.overlap is not None:
                assert 0 <= one.overlap <= (one.accepted + one.rejected) * (1 + 1e-9)
                accepted, tested, overlap = (
                    accepted + one.accepted, tested + one.accepted + one.rejected, overlap + one.overlap,
                )  # fmt: skip
    assert tested > 100
    assert abs(accepted - overlap) < 2.5 * tested**0.5  # five standard deviations at most


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
    work = asked(drafted, DRAWN)
    first, again = run_job(drafted, work), run_job(drafted, work)
    assert said(first) == said(again)
    accepted = [sum(one.accepted for one in told.draft_steps) for told in (first, again)]
    tokens = sum(len(one.token_ids) for one in again.completions)
    assert (accepted[1] > 0.6 * tokens > accepted[0]) if remembers else (accepted[0] == accepted[1])


def test_without_a_draft_nothing_is_told_of_drafts(arms):
    _, arm = arms
    plain = arm("variant", INT4)
    assert run_job(plain, job(plain, "")).draft_steps == ()


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
    drawn = Sampling(temperature=1.0)
    base, drafted = arm(), arm("variant", INT2, speculation=replace(WAYS["self-draft"], rule=rule))
    artifact = tmp_path / "job-0.safetensors"

    def work(one: LoadedArm) -> Job:
        given = job(one, artifact)
        return replace(given, prompts=tuple(replace(prompt, sampling=drawn) for prompt in given.prompts), seed=3)

    said, found = run_job(base, work(base)), run_job(drafted, work(drafted))
    ours = [one.token_ids for one in said.completions]
    theirs = [one.token_ids for one in found.completions]
    parted = 0
    for one, other, drift in zip(ours, theirs, found.drifts, strict=True):
        at = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), None)
        if at is not None:
            parted += 1
            assert drift.first_divergence == at
    assert parted > 8


RULES = ("speculative_sampling", "block_verification", "typical", "lenient")


@pytest.mark.parametrize("arms", KINDS, indirect=True)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "way", ["self-draft", "bad draft", "n-gram", "three levels", "head", "medusa heads", "parallel head"]
)
def test_a_rule_s_answers_are_the_same_again_and_greedy_ones_are_the_target_s(arms, plainly, way, rule, heads):
    kind, arm = arms
    found = WAYS.get(way) or by_head(heads / f"{kind}-True", arm("variant"), *HEADS[way])
    drafted = arm("variant", speculation=replace(found, rule=rule))
    greedy, drawn = run_job(drafted, asked(drafted, GREEDY)), run_job(drafted, asked(drafted, DRAWN))
    assert said(greedy) == plainly(None, GREEDY)
    assert said(drawn) == bits(drafted, asked(drafted, DRAWN)) != plainly(None, DRAWN), "or nothing was ruled"
    assert (drawn.generation.checked, greedy.generation.checked > 0) == (0, True)
    assert {len(tokens) > 0 for tokens, *_ in said(drawn)} == {True}
