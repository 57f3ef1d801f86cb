"""Every message that a user may read, in the order of the files: `python -m tests.house messages`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.imports import ROOT, modules, parsed

SPOKEN = (
    "tell",
    "say",
    "warn",
    "note",
    "fail",
    "echo",
    "add_argument",
    "Option",
    "Argument",
)  # calls that print a text
LEAST_WORDS = 3  # a shorter text is a label


def messages() -> Iterator[tuple[Path, int, str]]:
    """Yield file, line and text of what is raised or printed; `{…}` stands for a value."""
    for path in sorted(modules().values()):
        for node in ast.walk(parsed(path)):
            error = node.exc if isinstance(node, ast.Raise) else node if _prints(node) else None
            for text in _texts(error) if isinstance(error, ast.Call) else ():
                if len(text.split()) >= LEAST_WORDS:
                    yield path.relative_to(ROOT), node.lineno, text


def _prints(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in SPOKEN or name.endswith(("Error", "Fault", "Missing"))


def _texts(call: ast.Call) -> Iterator[str]:
    """Yield the texts among the arguments of a call, also in the branches of a conditional."""
    for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
        for node in [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield " ".join(node.value.split())
            elif isinstance(node, ast.JoinedStr):
                yield " ".join("".join(map(_part, node.values)).split())


def _part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "{…}"
