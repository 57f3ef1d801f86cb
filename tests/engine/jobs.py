"""A tiny arm with prompts of many lengths, and the job that runs them."""

from __future__ import annotations

import random
from pathlib import Path

from qualgate.engine.load import LoadedArm, load_arm
from qualgate.records import ArmSpec, Job, Prompt, QuantizeRecipe, UnitKey

INT4 = QuantizeRecipe(method="int4", group_size=32)
INT8 = QuantizeRecipe(method="int8", group_size=0)


def loaded(
    model: Path, cache: Path, name: str = "baseline", quantize: QuantizeRecipe | None = None, **more
) -> LoadedArm:
    spec = ArmSpec(name=name, model=str(model), quantize=quantize, **more)
    return load_arm(spec, cache, {"temperature": 0}, device="cpu")


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
