"""Cases of the shipped evalsets, by the kind of their answers, rendered for a model: what decoding is measured on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path

from qualgate import refmodel
from qualgate.engine.prompts import Renderer
from qualgate.quant.model_files import read_files
from qualgate.records import Case, Prompt, UnitKey

KINDS = {
    "short": ("transform", "json_extract"),
    "structured": ("reformat", "tool_calls", "code"),
    "text": ("arithmetic", "grounded_qa"),
}
"""Sets by what is answered: a line; long lists, calls and programs; sentences that reach an answer."""
MODEL = refmodel.PATH


def asked(per_set: int, *, first: int = 0, arm: str = "baseline") -> dict[str, list[Prompt]]:
    """Of each kind `per_set` cases a set, from `first` on, as prompts of an arm of the reference model."""
    return asked_of(KINDS, per_set, first=first, arm=arm)


def asked_of(
    kinds: Mapping[str, Sequence[str]], per_set: int, *, first: int = 0, arm: str = "baseline"
) -> dict[str, list[Prompt]]:
    """The same of other kinds, each of which names its sets."""
    renderer = Renderer(read_files(Path(MODEL)))
    return {kind: _prompts(renderer, sets, first, first + per_set, arm) for kind, sets in kinds.items()}


def _prompts(renderer: Renderer, sets: Sequence[str], first: int, stop: int, arm: str) -> list[Prompt]:
    folder = files("qualgate_evalsets")
    cases = [
        Case(evalset=name, body=json.loads(line))
        for name in sets
        for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[first:stop]
    ]
    return [
        Prompt(
            key=UnitKey(arm, case.evalset, case.id),
            case_hash=case.hash,
            token_ids=tuple(ids),
            max_new_tokens=case.max_new_tokens,
        )
        for case, ids in zip(cases, renderer.render(cases), strict=True)
    ]
