"""What several rows of benchmark `speculation` are measured with, made when it is first asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from qualgate.engine.device import Device
from qualgate.engine.loaded import LoadedArm
from qualgate.records import Prompt
from tests.benchmarks import ours, peers
from tests.benchmarks.questions import MODEL, asked_of
from tests.benchmarks.speculating import Told, answered
from tests.benchmarks.turns import Turn
from tests.benchmarks.widened import LEAST, write_widened

T = TypeVar("T")
TASKS = ("arithmetic", "code", "reformat", "tool_calls")  # whose answers are longest
WARMING = 300  # place of a case that no row measures


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured: prompts of each task, in all and of some rows; rounds of_costs of products, and with
    vLLM."""

    per_task: int
    of_peers: int
    of_cells: int
    of_bits: int
    of_costs: int
    rounds: int


class Ground:
    """Arms, prompts, and what was measured once for two rows. told: every run of each contender of ours."""

    def __init__(self, work: Path, size: Size, device: Device = "cpu") -> None:
        self.work, self.size = work, size
        self._device: Device = device
        self.told: dict[str, list[Told]] = {}
        self._arms: dict[str, LoadedArm] = {}
        self._folders: dict[str, Path] = {}
        self._once: dict[str, Any] = {}

    def once(self, name: str, measure: Callable[[], T]) -> T:
        """What `measure` gave when it was first called for."""
        if name not in self._once:
            self._once[name] = measure()
        return self._once[name]

    def prompts(self, per_task: int) -> dict[str, list[Prompt]]:
        """The first so many of each task."""
        return asked_of({task: (task,) for task in TASKS}, per_task)

    @cached_property
    def warming(self) -> Prompt:
        """One of none of these."""
        [prompt] = asked_of({"code": ("code",)}, 1, first=WARMING)["code"]
        return prompt

    @cached_property
    def widened(self) -> tuple[Path, int]:
        """The folder of the target, and how often each inner feature is there."""
        folder = self.work / "widened"
        return folder, write_widened(Path(MODEL), folder, LEAST)

    def target(self, recipe: Any = None) -> LoadedArm:
        """The widened model, or made of it by a recipe."""
        return self._arm(self.widened[0], recipe)

    def reference(self, recipe: Any = None) -> LoadedArm:
        """The model itself, likewise."""
        return self._arm(Path(MODEL), recipe)

    def _arm(self, folder: Path, recipe: Any) -> LoadedArm:
        key = f"{folder} {json.dumps(recipe)}"
        if key not in self._arms:
            self._arms[key] = ours.load("baseline", folder, self.work / "cache", recipe, self._device)
        return self._arms[key]

    def dequantized(self, which: Literal["widened", "reference"]) -> Path:
        """The folder of a model's MXFP4 cast in plain numbers."""
        if which not in self._folders:
            model = self.widened[0] if which == "widened" else Path(MODEL)
            self._folders[which] = peers.write_dequantized(
                model, "mxfp4", self.work / "cache", self.work / f"{which}-plain"
            )
        return self._folders[which]

    def answers(self, way: str, arm: LoadedArm) -> Callable[[Prompt], Turn]:
        """A contender: one sequence at a time. It has said something before, which nobody counts."""
        answered(arm, [self.warming])
        told = self.told.setdefault(way, [])

        def answer(prompt: Prompt) -> Turn:
            one = answered(arm, [prompt])
            told.append(one)
            return Turn(tokens=one.tokens[0], seconds=one.last[0], decoding=one.last[0] - one.first[0])

        return answer
