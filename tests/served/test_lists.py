"""The reference model and its int8 and int4 behind our own server: what lists prove of the KL, and what the baseline's
answers save, both held against the same arms in process. Figures are printed (`-s`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from qualgate import evalsets
from qualgate.engine.job import run_job
from qualgate.engine.prompts import Renderer
from qualgate.quant.model_folder import read_tokenizer_folder
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Job, JobResult, Prompt, Served, UnitKey
from qualgate.refmodel import PATH
from qualgate.served.job import run_served
from qualgate.served.server.answering import Answering
from tests.served.server.serving import serving

CASES = 240  # of tool_calls and arithmetic each
VARIANTS = {"int8": 0.25, "int4": 0.5}  # of a plain run's tokens, at most
LISTED = (20, 100, 5, 1)

pytestmark = pytest.mark.proof


@dataclass(frozen=True)
class Arms:
    """address: of an arm's server; behind: what answers there; here: what the same weights answer in process."""

    folder: Path
    prompts: tuple[Prompt, ...]
    address: dict[str, str]
    behind: dict[str, Answering]
    here: dict[str, JobResult]

    def job(self, name: str, spec: ArmSpec, kind: str) -> Job:
        prompts = tuple(replace(prompt, key=replace(prompt.key, arm=name)) for prompt in self.prompts)
        artifact = str(self.folder / kind / "job-00000.safetensors") if kind else ""
        return Job(index=0, arm=spec, prompts=prompts, artifact=artifact, drafted=name != "baseline")

    def served(self, name: str, k: int) -> JobResult:
        served = Served(
            endpoint=self.address[name], engine="qualgate", tokenizer=str(PATH), stream=False, prompt_logprobs=k
        )
        spec = ArmSpec(name=name, model="m", served=served)
        return run_served(self.job(name, spec, f"listed-{k}"), {"temperature": 0}, 32)


@pytest.fixture(scope="module")
def arms(tmp_path_factory) -> Iterator[Arms]:
    folder = tmp_path_factory.mktemp("lists")
    cases = [case for name in ("tool_calls", "arithmetic") for case in evalsets.load(name, folder).cases[:CASES]]
    rendered = Renderer(read_tokenizer_folder(PATH).files).render(cases)
    prompts = tuple(
        Prompt(
            key=UnitKey("baseline", case.evalset, case.id),
            case_hash=case.hash,
            token_ids=tokens,
            max_new_tokens=case.max_new_tokens,
        )
        for case, tokens in zip(cases, rendered, strict=True)
    )
    with ExitStack() as open_until_then:
        found = Arms(folder, prompts, {}, {}, {})
        for name in ("baseline", *VARIANTS):
            how = {"quantize": parse_recipe(name)} if name in VARIANTS else {}
            made = serving(PATH, "m", folder / "cache", name=name, **how)
            found.address[name], found.behind[name] = open_until_then.enter_context(made)
            arm = found.behind[name].arm
            found.here[name] = run_job(arm, found.job(name, arm.spec, "here"))
        yield found


def test_drafted_answers_are_the_plain_ones_for_a_fraction_of_the_tokens(arms):
    arms.served("baseline", 1)
    for name, most in VARIANTS.items():
        result = arms.served(name, 1)
        answers = [completion.token_ids for completion in arms.here[name].completions]
        plain = sum(map(len, answers))
        said = result.generation.tokens
        print(f"wire.drafted {name}: {said:,} of {plain:,} tokens said, {said / plain:.3f}; {result.generation}")
        assert [completion.token_ids for completion in result.completions] == answers
        assert result.generation.because == ""
        assert said <= most * plain


def test_the_true_kl_lies_inside_the_interval_at_every_position(arms):
    true = np.concatenate([drift.kl for drift in arms.here["int4"].drifts])
    assert len(true) >= 10_000
    for k in LISTED:
        arms.served("baseline", k)
        drifts = arms.served("int4", k).drifts
        least, most = (np.concatenate(of) for of in zip(*((one.kl, one.kl_upper) for one in drifts), strict=True))
        inside, width = (least <= true) & (true <= most), most - least
        print(
            f"kl.bounds k = {k}: {inside.mean():.2%} of {len(true):,} inside; mean KL {true.mean():.4f}, in "
            f"[{least.mean():.4f}, {most.mean():.4f}]; width median {np.median(width):.2g}, 99th percentile "
            f"{np.percentile(width, 99):.2g}"
        )
        assert inside.all()
        assert [one.top1_differs for one in drifts] == [one.top1_differs for one in arms.here["int4"].drifts]
