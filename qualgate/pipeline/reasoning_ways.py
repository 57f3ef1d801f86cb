"""Resolve `reasoning: auto`: how the baseline writes its thoughts, by its chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from qualgate.engine.prompts import Renderer
from qualgate.errors import UsageError
from qualgate.quant.agreement.templates import chat_template
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import Case, Evalset
from qualgate.scoring.reasoning import AUTO, NAMES, NONE, OPENED, of_template

SERVED_AS = "think", "its server renders prompts, and a thought that it takes off is written so"


def with_ways(sets: Sequence[Evalset], folder: ModelFolder | None, tell: Callable[[str], None]) -> tuple[Evalset, ...]:
    """Return the sets with `reasoning: auto` replaced by a way of writing thoughts.

    folder: the folder of the baseline's template; None: a server renders. tell: receives the result and its reason.
    Raises UsageError for a case that cannot be rendered, and for a template whose thoughts no way reads.
    """
    renderer = Renderer(folder.files) if folder and any(map(_auto_cases, sets)) else None
    return tuple(_resolved(item, renderer, tell) if _auto_cases(item) else item for item in sets)


def _auto_cases(item: Evalset) -> tuple[Case, ...]:
    return tuple(case for case in item.cases if case.body.get("reasoning") == AUTO)


def _resolved(item: Evalset, renderer: Renderer | None, tell: Callable[[str], None]) -> Evalset:
    """Resolve `auto` by one chat prompt of the set, since a template ends them all alike."""
    way, why = SERVED_AS
    if renderer is not None:
        chat = next((case for case in _auto_cases(item) if "messages" in case.body), None)
        way, why = of_template(renderer.text(chat) if chat else "", chat_template(renderer.files))
    if way == AUTO:
        names = ", ".join(name for name in NAMES if name != NONE)
        raise UsageError(
            f"{item.name}: `reasoning: auto`: {why}, so it would be scored as the answer. Say `reasoning: none` for "
            f"that, or one of {names} if the model writes another than its template."
        )
    tell(f"{item.name}: reasoning is {way}: {why}")
    return replace(item, cases=tuple(_as(case, way) for case in item.cases))


def _as(case: Case, way: str) -> Case:
    if case.body.get("reasoning") != AUTO:
        return case
    raw = way.removesuffix(OPENED)  # a raw prompt's own end shows whether the thought is open
    return replace(case, body={**case.body, "reasoning": way if "messages" in case.body else raw})
