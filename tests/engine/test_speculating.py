"""An arm that speculates answers as it does without: the same tokens, log-probs and margins, whoever drafts."""

from __future__ import annotations

from collections.abc import Collection, Iterable
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
from qualgate.records import DraftSource, DraftStep, Job, QuantizeRecipe, Sampling, Speculation
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, PLAIN_STEP
from tests.engine.engines import PACKED
from tests.engine.jobs import EARLY, INT2, INT4, INT8, MXFP4, NGRAM, SELF_DRAFT, job, said, sampled

HIGH_BITS = DraftSource(kind="high_bits", bits=4)


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
EARLY_EXITS = {"early exit": EARLY, "early exit of a draft": self_draft(MXFP4, 4, replace(EARLY, tokens=2))}
HIGH = {
    "high bits": Speculation(draft=HIGH_BITS, tokens=5),
    "high bits, as many as pay": Speculation(draft=HIGH_BITS),
    "first layers of the high bits": Speculation(
        draft=replace(HIGH_BITS, under=replace(EARLY, draft=replace(EARLY.draft, under=NGRAM))), tokens=5
    ),
    "high bits of a draft": self_draft(INT8, 4, Speculation(draft=HIGH_BITS, tokens=2)),
}
HEADS: dict[str, tuple[Layout, int]] = {
    "head": ("eagle", 4),
    "head, as many as pay": ("eagle", 0),
    "medusa heads": ("medusa", 4),
    "parallel head": ("parallel", 3),
    "parallel head, as many as pay": ("parallel", 0),
}
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
NOW = {("packed", "three levels"), *product(["plain"], ["self-draft", "as many as pay", "n-gram", "three levels",
       "head", "medusa heads", "parallel head", "early exit"])}  # fmt: skip
EVERY = [*product(["plain"], [*WAYS, *HEADS, *EARLY_EXITS]), *product(["packed"], ["three levels", "suffix", "head"])]


def by_depth(cases: Iterable[tuple[str, ...]], now: Collection[tuple[str, ...]]):
    return [pytest.param(*case, marks=() if case in now else pytest.mark.proof) for case in cases]


@pytest.mark.parametrize("target", [None, INT4], ids=["alone", "of a quantized target"])
@pytest.mark.parametrize(("arms", "way"), by_depth(EVERY, NOW), indirect=["arms"])
def test_no_bit_of_an_answer_depends_on_who_drafts(arms, plainly, way, target, heads):
    kind, arm = arms
    found = {**WAYS, **EARLY_EXITS}.get(way) or by_head(
        heads / f"{kind}-{target is None}", arm("variant", target), *HEADS[way]
    )
    drafted = arm("variant", target, speculation=found)
    for sampling in (GREEDY, DRAWN):
        assert bits(drafted, sampling) == plainly(target, sampling), sampling


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


RULED = ("self-draft", "bad draft", "n-gram", "three levels", "head", "medusa heads", "parallel head")
RULED_NOW = set(product(["plain"], ["three levels", "parallel head"]))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("arms", "way"),
    by_depth([*product(["plain"], RULED), ("packed", "three levels")], RULED_NOW),
    indirect=["arms"],
)
def test_a_rule_s_answers_are_the_same_again_and_greedy_ones_are_the_target_s(arms, plainly, way, rule, heads):
    kind, arm = arms
    found = WAYS.get(way) or by_head(heads / f"{kind}-True", arm("variant"), *HEADS[way])
    drafted = arm("variant", speculation=replace(found, rule=rule))
    greedy, drawn = (run_job(drafted, asked(drafted, sampling)) for sampling in (GREEDY, DRAWN))
    assert said(greedy) == plainly(None, GREEDY)
    assert said(drawn) == bits(drafted, DRAWN) != plainly(None, DRAWN), "or nothing was ruled"
    assert (drawn.generation.checked, greedy.generation.checked > 0) == (0, True)
    assert {len(tokens) > 0 for tokens, *_ in said(drawn)} == {True}
