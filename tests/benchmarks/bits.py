"""How self-drafts fare as their bits go, and whether it helps to keep some layers' bits high.

What a draft is worth is held apart from any machine: the gain if a draft's step costs its bits over its target's, and
verifying costs nothing (2503.13565 is bound so by memory), at the γ that is best for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qualgate.engine.loaded import LoadedArm
from qualgate.records import Prompt
from tests.benchmarks.speculating import Level, answered, drafted, fates
from tests.benchmarks.speedup import Accepted, accepted, tokens_a_pass

TOKENS = 8
MOST = 32
TARGET_BITS = 16
FORMATS: dict[str, Any] = {
    "int8": "int8", "fp8": "fp8", "mxfp8": "mxfp8", "nvfp4": "nvfp4", "mxfp4": "mxfp4",
    "int4_g32": {"method": "int4", "group_size": 32}, "int4_g128": {"method": "int4", "group_size": 128},
    "int3_g32": {"method": "int3", "group_size": 32}, "int2_g32": {"method": "int2", "group_size": 32},
}  # fmt: skip
KEEPS = {
    "attention": {"attention": "int8"},
    "feed-forward": {"mlp": "int8"},
    "the first and last layer": {"layers.0.*": "int8", "layers.5.*": "int8"},
}
KEPT: dict[str, dict[str, Any]] = {
    f"{method}, {what} kept in int8": {"method": method, "keep": keep}
    for method in ("mxfp4", "int3", "int2")
    for what, keep in KEEPS.items()
}
BASE = {"mxfp4": "mxfp4", "int3": "int3_g32", "int2": "int2_g32"}  # what a kept one is held against


@dataclass(frozen=True, slots=True, kw_only=True)
class Fared:
    """A self-draft. bits: a weight, of all that it holds; share: of tokens accepted, by task; worth: see above."""

    bits: float
    share: Mapping[str, float]
    tokens_a_pass: Mapping[str, float]
    worth: float
    best: int  # the γ of it

    @property
    def shown(self) -> dict[str, Any]:
        """As a result has it."""
        return {name: getattr(self, name) for name in self.__slots__}


def fared(target: LoadedArm, draft: LoadedArm, prompts: Mapping[str, Sequence[Prompt]]) -> Fared:
    """Of one draft over all tasks."""
    arm = drafted(target, Level(by=draft, tokens=TOKENS))
    runs = {task: answered(arm, mine, batch=len(mine)) for task, mine in prompts.items()}
    fate = accepted([step for run in runs.values() for step in run.levels[0]])
    shown = {task: fates([run])[0].shown for task, run in runs.items()}
    bits = draft.footprint.effective_bits
    worth, best = max((worth_of(fate, bits, tokens), -tokens) for tokens in range(1, MOST + 1))
    return Fared(
        bits=bits,
        share={task: one["share"] for task, one in shown.items()},
        tokens_a_pass={task: one["tokens_a_pass"] for task, one in shown.items()},
        worth=worth,
        best=-best,
    )


def worth_of(fate: Accepted, bits: float, tokens: int) -> float:
    """τ / (1 + γ c) with c = bits / 16: verifying costs nothing beside reading the weights."""
    return tokens_a_pass(tokens, fate) / (1 + tokens * bits / TARGET_BITS)


def keeping(found: Mapping[str, Fared]) -> dict[str, float]:
    """Of each draft with layers kept high, its worth over that of the same format without: above 1 it helps."""
    return {name: found[name].worth / found[BASE[name.partition(",")[0]]].worth for name in KEPT if name in found}
