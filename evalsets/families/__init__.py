"""The seven task families. Each module has TEMPLATES (id to template) and `make_case(values, level, template)`.

`make_case` returns a case without its id and token limit: `task`, `messages`, `tags`, `answer` (the one right text)
and what the family's own scorers read (`schema`, `tools` + `expected_calls`, `tests` + `entry_point`).
`level`, 0 to 1, is the difficulty: longer numbers, longer lists, more records, more tools to choose from.
"""

from __future__ import annotations

import random
from importlib import import_module
from types import ModuleType
from typing import Any

from qualgate_evalsets.making.values import Split, Values

__all__ = ["FAMILIES", "draw_case", "family"]

FAMILIES = ("arithmetic", "json_extract", "tool_calls", "code", "transform", "reformat", "grounded_qa")


def family(name: str) -> ModuleType:
    """The module of one family."""
    return import_module(f"{__name__}.{name}")


def draw_case(name: str, rng: random.Random, split: Split, level: float, template: str | None = None) -> dict[str, Any]:
    """One case of a family, from `template` or any; redrawn until it holds a value, so that no two splits share it."""
    module = family(name)
    while True:
        values = Values(rng, split)
        case = module.make_case(values, level, template or rng.choice(list(module.TEMPLATES)))
        if values.drawn:
            return case
