"""What the rows of benchmark `real-size` are measured with: the chat model, its cases, and how a row is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from qualgate.engine.loaded import LoadedArm
from qualgate.engine.prompts import Renderer
from qualgate.quant.model_files import read_files
from qualgate.records import Case, Prompt, UnitKey
from tests.benchmarks import ours
from tests.benchmarks.goals import REAL_SIZE
from tests.benchmarks.race import Standing
from tests.verification.shared import DATA

RECIPES: dict[str, Any] = {
    "int8": "int8",
    "int4": {"method": "int4", "group_size": 32},
}
TOKENS, KIND = 64, "text"
AT_LEAST = {
    "plain": 2.5, "vllm_plain": 2.5, "drafted_int8": 1.0, "drafted_int4": 1.0, "products": 0.7, "drift": 0.6,
    "llama_q8_0_1": 1.0, "llama_q4_0_1": 1.0, "llama_q8_0_12": 1.0, "llama_q4_0_12": 1.0,
    "plain_05b": 2.5, "plain_15b": 2.5,
}  # fmt: skip
OF_BFLOAT16 = {"alone": 2.5, "at_once": 1.6}  # how much faster int4 is to be, one row and 12 rows
LOAD, LOAD_AGAIN = 3.0, 1.0  # seconds
OF_COUNTED = 1.15  # the most that a process may hold, to its weights and states

Found = tuple[list[dict[str, Any]], dict[str, Any]]  # rounds and row


@dataclass(kw_only=True)
class Ground:
    """What several rows are measured with. singles: cases that are asked one at a time."""

    work: Path
    model: Path
    cases: int
    rounds: int
    singles: int = 4
    tokens: int = TOKENS

    @cached_property
    def prompts(self) -> dict[str, list[Prompt]]:
        """The first turns, as prompts of the baseline."""
        lines = (DATA / "mt_bench" / "question.jsonl").read_text(encoding="utf-8").splitlines()[: self.cases]
        questions = [json.loads(line)["turns"][0] for line in lines]
        cases = [
            Case(evalset="mt_bench", body={"id": str(at), "messages": [{"role": "user", "content": text}]})
            for at, text in enumerate(questions)
        ]
        rendered = zip(cases, Renderer(read_files(self.model)).render(cases), strict=True)
        return {
            KIND: [
                Prompt(
                    key=UnitKey("baseline", case.evalset, case.id),
                    case_hash=case.hash,
                    token_ids=tuple(ids),
                    max_new_tokens=self.tokens,
                )
                for case, ids in rendered
            ]
        }

    @cached_property
    def baseline(self) -> LoadedArm:
        """The model in bfloat16."""
        return ours.load("baseline", self.model, self.work / "cache")


def endless(arm: LoadedArm) -> LoadedArm:
    """The arm with no token that ends an answer, so that each answer has all the tokens that are asked for."""
    return replace(arm, stop_ids=())


def row(id: str, stood: Standing, **more: Any) -> dict[str, Any]:
    """A row of a race whose contenders are to say the same."""
    met = stood.ratio >= AT_LEAST[id] and stood.unlike == 0
    return REAL_SIZE.row(id, stood.ratio, met=met, spread=[min(stood.ratios), max(stood.ratios)]) | stood.shown | more
