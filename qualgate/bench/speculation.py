"""Benchmark `speculation`: what drafts gain, against our own plain engine and against others that speculate.

ML-SpecQD (2503.13565) on two cores: a bfloat16 target, its own MXFP4 cast for a draft, and something cheaper that
drafts for that. The target is the reference model widened (`widened`): its answers, in weights that no cache holds.
Every way answers the same prompts in turns, one sequence at a time where nothing else is said, and all must say the
same tokens as plain decoding: one that does not meets no goal. Ratios are of seconds a token after the first (TPOT);
those of whole answers stand beside them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from qualgate.bench import ours, turns
from qualgate.bench.goals import SPECULATION
from qualgate.bench.questions import MODEL, asked_of
from qualgate.bench.race import MOST_UNLIKE
from qualgate.bench.speculating import Level, Told, answered, drafted, fates
from qualgate.bench.turns import Turn, Turns
from qualgate.bench.widened import LEAST, write_widened
from qualgate.engine.load import LoadedArm
from qualgate.records import Prompt

TASKS = ("arithmetic", "code", "reformat", "tool_calls")  # whose answers are longest
AT_LEAST = {"specqd_1": 2.0, "specqd_2": 2.7}
TOKENS, OF_TWO = 8, 16  # γ of the self-draft alone, and over n-grams, whose drafts make it cheaper

Found = tuple[list[dict[str, Any]], dict[str, Any]]  # rounds and a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured. per_task: prompts."""

    per_task: int


FULL = Size(per_task=25)
QUICK = Size(per_task=2)


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """All rows, or those of `only`. About 20 minutes of two idle cores; quick: 4 minutes."""
    return measured(QUICK if quick else FULL, only)


def measured(size: Size, only: Sequence[str] = ()) -> dict[str, Any]:
    """The result of so much measuring."""
    few = None if size == FULL else f"{size.per_task} prompts a task only (--quick)"
    rounds: list[dict[str, Any]] = [{"threads": torch.get_num_threads()}]
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as work:
        ground = Ground(Path(work), size)
        for id, measure in _parts().items():
            if only and id not in only:
                rows[id] = SPECULATION.not_run(id, "not asked for (--only)")
                continue
            of_rounds, row = measure(ground, id)
            rounds += of_rounds
            rows[id] = row if few is None else row | {"met": None, "reason": few}
    return SPECULATION.result(rounds=rounds, rows=[rows[id] for id in SPECULATION.goals])


def _parts() -> dict[str, Callable[[Ground, str], Found]]:
    return {"specqd_1": _specqd, "specqd_2": _specqd}


class Ground:
    """What several rows are measured with, made when it is first asked for."""

    def __init__(self, work: Path, size: Size) -> None:
        self.work, self.size = work, size
        self.told: dict[str, list[Told]] = {}  # of each way
        self._arms: dict[tuple[str, str], LoadedArm] = {}

    @cached_property
    def prompts(self) -> dict[str, list[Prompt]]:
        """Of each task."""
        return asked_of({task: (task,) for task in TASKS}, self.size.per_task)

    @cached_property
    def widened(self) -> Path:
        """The folder of the target."""
        self.times = write_widened(Path(MODEL), self.work / "widened", LEAST)
        return self.work / "widened"

    def arm(self, folder: Path | str, recipe: str = "") -> LoadedArm:
        """A model, quantized where a recipe is said."""
        key = str(folder), recipe
        if key not in self._arms:
            self._arms[key] = ours.load(recipe or "baseline", folder, self.work / "cache", recipe or None)
        return self._arms[key]

    def answers(self, way: str, arm: LoadedArm) -> Callable[[Prompt], Turn]:
        """A contender: one sequence at a time."""
        told = self.told.setdefault(way, [])

        def answer(prompt: Prompt) -> Turn:
            one = answered(arm, [prompt])
            told.append(one)
            return Turn(tokens=one.tokens[0], seconds=one.last[0], decoding=one.last[0] - one.first[0])

        return answer

    @cached_property
    def specqd(self) -> Turns:
        """The target alone and with each of who may draft for it."""
        plain, packed = self.arm(self.widened), self.arm(self.widened, "mxfp4")
        ways = {
            "plain": plain,
            "mxfp4": drafted(plain, Level(by=packed, tokens=TOKENS)),
            "ngram": drafted(plain, Level(by="ngram")),
            "both": drafted(plain, Level(by=packed, tokens=OF_TWO), Level(by="ngram")),
        }
        return turns.in_turns(
            "speculation, specqd", {name: self.answers(name, arm) for name, arm in ways.items()}, self.prompts
        )

    @cached_property
    def reference(self) -> tuple[int, dict[str, Any]]:
        """Prompts that the un-widened model answers with other tokens than the widened one; what of its self-draft's
        tokens it accepts."""
        arm, unlike, found = self.arm(MODEL), 0, []
        speculating = drafted(arm, Level(by=self.arm(MODEL, "mxfp4"), tokens=TOKENS))
        for task, prompts in self.prompts.items():
            told = answered(speculating, prompts)
            found.append(told)
            unlike += sum(said != one["plain"].tokens for said, one in zip(told.tokens, self.specqd[task], strict=True))
        return unlike, fates(found)[0].shown


def _specqd(ground: Ground, id: str) -> Found:
    way = "mxfp4" if id == "specqd_1" else "both"
    found = {name: turns.gain(ground.specqd, name, "plain", "decoding") for name in ("mxfp4", "ngram", "both")}
    whole = turns.gain(ground.specqd, way, "plain")
    unlike = turns.unlike(ground.specqd, way, "plain")
    other, narrow = ground.reference
    cases = sum(map(len, ground.prompts.values()))
    met = found[way].ratio >= AT_LEAST[id] and not unlike and other <= MOST_UNLIKE * cases
    row = SPECULATION.row(id, found[way].ratio, met=met, spread=list(found[way].interval)) | {
        "tasks": dict(found[way].by_task),
        "whole_answers": {"ratio": whole.ratio, "interval": list(whole.interval)},
        "drafts": [one.shown for one in fates(ground.told[way])],
        "target": f"widened {ground.times} times",
        "unwidened_drafts": narrow,
        "cases": cases,
        "cases_with_other_tokens": unlike,
        "cases_widened_otherwise": other,
    }
    if id == "specqd_1":
        return turns.shown("specqd", ground.specqd), row
    return [], row | {
        "crossover": {name: {"ratio": one.ratio, "interval": list(one.interval)} for name, one in found.items()}
    }
