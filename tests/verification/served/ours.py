"""The reference model's arms, in process and behind our own server, asked the same questions of the shipped sets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate.engine.job import run_job
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Job, JobResult, Prompt, Served
from qualgate.refmodel import PATH
from qualgate.served.job import run_served
from tests.served.server.answering import Answering
from tests.served.server.serving import serving

AT_ONCE = 32


@dataclass(frozen=True)
class Arms:
    """The baseline and variants. address: of an arm's server; behind: what answers there."""

    folder: Path
    prompts: tuple[Prompt, ...]
    address: Mapping[str, str]
    behind: Mapping[str, Answering]

    def here(self, name: str) -> JobResult:
        """What the arm answers in process; the baseline first, whose artifact the variants' drift is of."""
        arm = self.behind[name].arm
        return run_job(arm, self._job(name, arm.spec, "here"))

    def served(self, name: str, k: int) -> JobResult:
        """What its server answers. k: tokens that are listed at each place of the baseline's answers, 0: drift is not
        read and each answer is said whole; the baseline first."""
        served = Served(
            endpoint=self.address[name], engine="vllm", tokenizer=str(PATH), stream=False, prompt_logprobs=k
        )
        job = self._job(name, ArmSpec(name=name, model="m", served=served), f"listed-{k}" if k else "")
        return run_served(job, {"temperature": 0}, AT_ONCE)

    def _job(self, name: str, spec: ArmSpec, kind: str) -> Job:
        prompts = tuple(replace(prompt, key=replace(prompt.key, arm=name)) for prompt in self.prompts)
        artifact = str(self.folder / kind / "job-00000.safetensors") if kind else ""
        return Job(index=0, arm=spec, prompts=prompts, artifact=artifact, drafted=bool(kind) and name != "baseline")


@contextmanager
def arms(prompts: Sequence[Prompt], variants: Sequence[str]) -> Iterator[Arms]:
    """The baseline and its weights quantized as each variant is called, all of them served until this is left."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, address, behind = Path(name), dict[str, str](), dict[str, Answering]()
        for arm in ("baseline", *variants):
            how = {} if arm == "baseline" else {"quantize": parse_recipe(arm)}
            address[arm], behind[arm] = stack.enter_context(serving(PATH, "m", folder / "cache", name=arm, **how))
        yield Arms(folder, tuple(prompts), address, behind)
