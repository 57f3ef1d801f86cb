"""Check the models that rows of score files name: one per side, and each under its own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.intake.score_rows import Scores
from qualgate.text.numbers import counted


def refuse_other_models(gate: GateFile, sides: Mapping[str, Scores]) -> None:
    """Raise UsageError for rows that name the wrong model.

    That is: two models on one side that `models` does not list, a name missing from `models`, or a name that the gate
    file states for another arm only (swapped files). Other unknown names pass: servers choose names freely. sides: by
    arm, the baseline's first.
    """
    for arm, side in sides.items():
        arms = _meant(gate, arm)
        arm_models = {name for arm_name in arms for name in _stated(gate, arm_name)}
        others = {
            name: arm_name for arm_name in _arms(gate) if arm_name not in arms for name in _stated(gate, arm_name)
        }
        for name in side.models:
            if name in others and name not in arm_models:
                raise UsageError(
                    f"{_where(side, name)}: {arm}'s rows name the model {name!r:.80}, which the gate file states of "
                    f"{others[name]}. Are two files swapped? A second name of one model is listed: `models: [{name}]`"
                )
            if all(name not in gate.models.get(arm_name, (name,)) for arm_name in arms):
                listed_names = ", ".join(sorted({listed for arm_name in arms for listed in gate.models[arm_name]}))
                raise UsageError(
                    f"{_where(side, name)}: {arm}'s rows name the model {name!r:.80}; the gate file's `models` lists "
                    f"{listed_names}"
                )
        if len(side.models) > 1 and not any({*side.models} <= {*gate.models.get(arm_name, ())} for arm_name in arms):
            model, second = side.models[:2]
            raise UsageError(
                f"{_where(side, second)}: rows of two models, {model!r:.80} and {second!r:.80}, in one arm's file. "
                f"Give each model's rows by themselves; if they are names of one, list them in the gate file: "
                f"{arms[0]}: {{…, models: [{', '.join(side.models[:5])}]}}"
            )


def one_name_of_two(sides: Mapping[str, Scores]) -> Iterator[str]:
    """Yield a note for each two arms whose rows name the same model: it may be an alias, or the wrong file."""
    for arm, second in combinations(sides, 2):
        for name in sides[arm].models:
            if name in sides[second].models:
                yield (
                    f"the rows of {arm} and {second} name one model, {name!r:.80}: an alias, or one model's rows twice"
                )


def unnamed(sides: Mapping[str, Scores]) -> Iterator[str]:
    """Yield a note for each arm of which some rows name a model and others none."""
    for arm, side in sides.items():
        silent = [row for row in side.rows if not row.model]
        if side.models and silent:
            yield (
                f"{len(silent):,} of {counted(len(side.rows), 'row')} of {arm} name no model, from line "
                f"{silent[0].line} on, and the others {side.models[0]!r:.80}: whose they are is not known"
            )


def _arms(gate: GateFile) -> tuple[str, ...]:
    return gate.baseline.name, *(arm.name for arm in gate.variants)


def _meant(gate: GateFile, arm: str) -> tuple[str, ...]:
    """Return the gate file's arms that a side may be; with two files the variant may be any of them."""
    return (arm,) if arm in _arms(gate) else tuple(variant.name for variant in gate.variants)


def _stated(gate: GateFile, arm: str) -> set[str]:
    """Return the model names that the gate file gives an arm: a variant's name, its folder's, and those in `models`.
    `baseline` is a role and no model name."""
    spec = next(candidate for candidate in (gate.baseline, *gate.variants) if candidate.name == arm)
    names = set() if spec.is_baseline else {arm}
    server_names = (
        {spec.model} if spec.served else set[str]()
    )  # by its server: "org/model", of which a folder is the last
    return {*names, *server_names, Path(spec.model).name, *gate.models.get(arm, ())}


def _where(side: Scores, model: str) -> str:
    return f"{side.source}:{next(row.line for row in side.rows if row.model == model)}"
