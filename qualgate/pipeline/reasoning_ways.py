"""`reasoning: auto`: how the baseline writes its thoughts, as its chat template says."""

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
    """The sets, their cases naming a way where they had `auto`.

    folder: the one whose template the baseline reads; None: a server renders. tell: told what was found, and by
    what. UsageError for a case that cannot be rendered, and for a template whose thoughts no way reads.
    """
    renderer = Renderer(folder.files) if folder and any(map(_untold, sets)) else None
    return tuple(_told(item, renderer, tell) if _untold(item) else item for item in sets)


def _untold(item: Evalset) -> tuple[Case, ...]:
    return tuple(case for case in item.cases if case.body.get("reasoning") == AUTO)


def _told(item: Evalset, renderer: Renderer | None, tell: Callable[[str], None]) -> Evalset:
    """A template ends the prompts of a set alike, so one of them tells; a raw prompt ends as its case says."""
    way, why = SERVED_AS
    if renderer is not None:
        chat = next((case for case in _untold(item) if "messages" in case.body), None)
        way, why = of_template(renderer.text(chat) if chat else "", chat_template(renderer.files))
    if way == AUTO:
        known = ", ".join(one for one in NAMES if one != NONE)
        raise UsageError(
            f"{item.name}: `reasoning: auto`: {why}, so it would be scored as the answer. Say `reasoning: none` for "
            f"that, or one of {known} if the model writes another than its template."
        )
    tell(f"{item.name}: reasoning is {way}: {why}")
    return replace(item, cases=tuple(_as(case, way) for case in item.cases))


def _as(case: Case, way: str) -> Case:
    if case.body.get("reasoning") != AUTO:
        return case
    raw = way.removesuffix(OPENED)  # of a raw prompt its own end tells whether the thought is open
    return replace(case, body={**case.body, "reasoning": way if "messages" in case.body else raw})
