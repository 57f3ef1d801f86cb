"""Resolve `dialect: auto`: how the baseline writes its tool calls, by its chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from qualgate.quant.agreement.templates import chat_template
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import Case, Evalset
from qualgate.scoring.tools.dialects.detect import of_template
from qualgate.scoring.tools.dialects.registry import AUTO

ANY = "its calls are read in any dialect"


def with_dialects(
    sets: Sequence[Evalset], folder: ModelFolder | None, tell: Callable[[str], None]
) -> tuple[Evalset, ...]:
    """Return the sets with `dialect: auto` replaced by the template's dialect; it stays if the template shows none.

    folder: the folder of the baseline's template; None: a server renders. tell: receives the result and its reason.
    """
    if not any(_is_auto(case) for item in sets for case in item.cases):
        return tuple(sets)
    if folder is None:
        name, line = "", f"dialect stays auto: its server renders prompts, so {ANY}; `tokenizer:` names a template"
    else:
        name, signs = of_template(chat_template(folder.files))
        line = f"dialect is {name}: its template writes {signs}"
        if not name:
            line = f"dialect stays auto: its template writes the markers of none, so {ANY}"
    return tuple(_with_dialect(item, name or AUTO, line, tell) for item in sets)


def _is_auto(case: Case) -> bool:
    return case.body.get("dialect") == AUTO


def _with_dialect(item: Evalset, name: str, line: str, tell: Callable[[str], None]) -> Evalset:
    """Return the set with this dialect in place of `auto`, and report it. line: the result with its reason."""
    if not any(map(_is_auto, item.cases)):
        return item
    tell(f"{item.name}: {line}")
    cases = (replace(case, body={**case.body, "dialect": name}) if _is_auto(case) else case for case in item.cases)
    return replace(item, cases=tuple(cases))
