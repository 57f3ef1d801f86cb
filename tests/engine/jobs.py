"""Tiny arms under each engine, with prompts of many lengths, and the job that runs them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from qualgate.engine import dense
from qualgate.engine.choice import Choice
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.loaded import LoadedArm
from qualgate.records import (
    ArmSpec,
    DraftSource,
    Job,
    JobResult,
    Prompt,
    QuantizeRecipe,
    Sampling,
    Speculation,
    UnitKey,
)
from tests.tiny_models import END, save_tiny_model

INT4 = QuantizeRecipe(method="int4", group_size=32)
INT8 = QuantizeRecipe(method="int8", group_size=0)
INT2 = QuantizeRecipe(method="int2", group_size=32)
MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
NGRAM = Speculation(draft=DraftSource(kind="ngram"), tokens=3)
SELF_DRAFT = Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4), tokens=5)
Kind = Literal["plain", "packed", "padded"]
ENGINES: dict[Kind, Literal["llama", "gemma2"]] = {"plain": "llama", "packed": "gemma2", "padded": "llama"}


def loaded(
    model: Path, cache: Path, name: str = "baseline", quantize: QuantizeRecipe | None = None, **more
) -> LoadedArm:
    spec = ArmSpec(name=name, model=str(model), quantize=quantize, **more)
    return load_arm(spec, cache, {"temperature": 0}, device="cpu")


def under(kind: Kind, arm: LoadedArm) -> LoadedArm:
    """`arm`, run by an engine that serves what its own does not: packed passes take a plain decoder too, and padded
    batches everything."""
    if kind == arm.choice.kind:
        return arm
    assert list(ENGINES).index(kind) > list(ENGINES).index(arm.choice.kind)
    if kind == "packed":
        return replace(arm, choice=replace(arm.choice, kind="packed"))
    dense.take_back(arm.model)
    return replace(arm, choice=Choice(kind="padded", numbers=arm.choice.numbers))


def arms_under(kind: Kind, folder: Path, eos_token_ids: Sequence[int] = (END,)) -> Callable[..., LoadedArm]:
    """Loads arms (name, recipe, ...) of one tiny model, all run by this engine."""
    model = save_tiny_model(folder / "model", arch=ENGINES[kind], eos_token_ids=eos_token_ids)

    def arm(name: str = "baseline", quantize: QuantizeRecipe | None = None, **more) -> LoadedArm:
        found = under(kind, loaded(model, folder, name, quantize, **more))
        assert found.choice.kind == kind
        return found

    return arm


def job(arm: LoadedArm, artifact: Path | str, *, drafted: bool = False, count: int = 16, seed: int = 0) -> Job:
    draw = random.Random(seed)
    prompts = tuple(
        Prompt(
            key=UnitKey(arm.spec.name, "set", f"case-{number}"),
            case_hash=f"hash-{number}",
            token_ids=tuple(draw.randrange(256) for _ in range(draw.choice([1, 7, 30, 60]))),
            max_new_tokens=draw.choice([1, 5, 16, 28]),
        )
        for number in range(count)
    )
    return Job(index=0, arm=arm.spec, prompts=prompts, artifact=str(artifact), drafted=drafted)


def sampled(work: Job, sampling: Sampling, seed: int = 3) -> Job:
    """The same questions, answered so."""
    return replace(work, prompts=tuple(replace(one, sampling=sampling) for one in work.prompts), seed=seed)


def said(told: JobResult) -> list[tuple[Any, ...]]:
    """What was answered, to the bit."""
    return [
        (one.token_ids, one.logprobs, one.margins, one.finish_reason, one.masked, one.text) for one in told.completions
    ]


def the_same_however_asked(
    base: LoadedArm, arm: LoadedArm, artifact: Path, change: Callable[[Job], Job] = lambda work: work
) -> JobResult:
    """An arm's answers, which have the same bits drafted from the baseline's, plainly, and each alone."""
    run_job(base, change(job(base, artifact, count=8)))
    drafted, plain = (run_job(arm, change(job(arm, artifact, drafted=drafted, count=8))) for drafted in (True, False))
    assert said(drafted) == said(plain)
    assert drafted.drifts == plain.drifts
    whole = change(job(arm, "", count=8))
    alone = [run_job(arm, replace(whole, prompts=whole.prompts[at : at + 1])) for at in range(8)]
    assert [one for told in alone for one in said(told)] == said(plain)
    return drafted


def the_same_whoever_drafts(plain: LoadedArm, drafted: LoadedArm, *samplings: Sampling) -> JobResult:
    """What the second answers, which has the bits that the first answers by itself. It was offered drafts."""
    found = None
    for sampling in samplings or (Sampling(),):
        found = run_job(drafted, sampled(job(drafted, ""), sampling))
        assert said(found) == said(run_job(plain, sampled(job(plain, ""), sampling))), sampling
        assert found.overflow == ()
    assert found is not None
    assert drafted.draft is not None
    assert not drafted.draft.spec.tokens or sum(one.proposed for one in found.draft_steps) > 0
    return found
