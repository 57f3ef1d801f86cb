"""Whose answers score files hold, by what their rows call the model: one model a side, and each under its own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path

from qualgate.config import GateFile
from qualgate.errors import UsageError
from qualgate.formatting import counted
from qualgate.intake.score_rows import Scores


def refuse_other_models(gate: GateFile, sides: Mapping[str, Scores]) -> None:
    """UsageError for rows of one side that name two models, unless the gate file's `models` lists them; for a name that
    `models` leaves out; and for a name that the gate file states of another arm alone: the files are swapped.

    sides: by arm, the baseline's first. A name that the gate file does not know is its own business: servers call a
    model what they like.
    """
    for arm, side in sides.items():
        meant = _meant(gate, arm)
        ours = {name for one in meant for name in _stated(gate, one)}
        others = {name: one for one in _arms(gate) if one not in meant for name in _stated(gate, one)}
        for name in side.models:
            if name in others and name not in ours:
                raise UsageError(
                    f"{_where(side, name)}: {arm}'s rows name the model {name!r:.80}, which the gate file states of "
                    f"{others[name]}. Are two files swapped? A second name of one model is listed: `models: [{name}]`"
                )
            if all(name not in gate.models.get(one, (name,)) for one in meant):
                known = ", ".join(sorted({listed for one in meant for listed in gate.models[one]}))
                raise UsageError(
                    f"{_where(side, name)}: {arm}'s rows name the model {name!r:.80}; the gate file's `models` lists "
                    f"{known}"
                )
        if len(side.models) > 1 and not any({*side.models} <= {*gate.models.get(one, ())} for one in meant):
            one, other = side.models[:2]
            raise UsageError(
                f"{_where(side, other)}: rows of two models, {one!r:.80} and {other!r:.80}, in one arm's file. Give "
                f"each model's rows by themselves; if they are names of one, list them in the gate file: {meant[0]}: "
                f"{{…, models: [{', '.join(side.models[:5])}]}}"
            )


def one_name_of_two(sides: Mapping[str, Scores]) -> Iterator[str]:
    """A line for each two arms whose rows name one model: an alias says nothing, and a wrong file would look so."""
    for one, other in combinations(sides, 2):
        for name in sides[one].models:
            if name in sides[other].models:
                yield f"the rows of {one} and {other} name one model, {name!r:.80}: an alias, or one model's rows twice"


def unnamed(sides: Mapping[str, Scores]) -> Iterator[str]:
    """A line for each arm of which some rows name a model and others none: nothing says whose these are."""
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
    """The gate file's arms that a side may be: where two files are given, the variant's is any of them."""
    return (arm,) if arm in _arms(gate) else tuple(one.name for one in gate.variants)


def _stated(gate: GateFile, arm: str) -> set[str]:
    """What the gate file calls an arm: a variant's name, its folder's, and what `models` lists. `baseline` is a role,
    and no model's name: an int8 model may be the baseline of one gate file and a variant of another."""
    spec = next(one for one in (gate.baseline, *gate.variants) if one.name == arm)
    named = set() if spec.is_baseline else {arm}
    listed = {spec.model} if spec.served else set[str]()  # by its server: "org/model", of which a folder is the last
    return {*named, *listed, Path(spec.model).name, *gate.models.get(arm, ())}


def _where(side: Scores, model: str) -> str:
    return f"{side.source}:{next(row.line for row in side.rows if row.model == model)}"
