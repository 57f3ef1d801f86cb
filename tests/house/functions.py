"""Measure every function of the shipped code: its length, types and docstrings."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.house.imports import ROOT, parsed, statements

MOST_LINES = 60
# Triton bodies take every pointer and stride; a migration writes one schema down.
BODIES = ("kernels/qualgate_kernels/", "migrations/versions/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """One `def`: `place` is file:line, `lines` from its `def` to its end."""

    place: str
    name: str
    lines: int
    typed: bool
    documented: bool
    public: bool


def functions(paths: list[Path]) -> list[Function]:
    """Return the functions of these files, nested ones too."""
    return [function for path in paths for function in _of(path)]


def _of(path: Path) -> Iterator[Function]:
    where = path.relative_to(ROOT).as_posix()
    for node in statements(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            own = given[1:] if given and given[0].arg in ("self", "cls") else given
            yield Function(
                place=f"{where}:{node.lineno}",
                name=node.name,
                lines=(node.end_lineno or node.lineno) - node.lineno + 1,
                typed=node.returns is not None and all(argument.annotation is not None for argument in own),
                documented=ast.get_docstring(node) is not None,
                public=not node.name.startswith("_"),
            )


def too_long(listed: list[Function]) -> list[str]:
    """Return the functions over 60 lines outside the files that may have them."""
    return [f"{function.place} {function.name} {function.lines}" for function in listed
            if function.lines > MOST_LINES and not function.place.startswith(BODIES)]  # fmt: skip


def ruled() -> dict[str, list[str]]:
    """Return ruff's findings by rule, as `file:line message`; McCabe complexity from 11 on."""
    command = [sys.executable, "-m", "ruff", "check", "--select", "C901,PLR0913,D100,D101,D102,D103,D104"]
    limit = ["--config", "lint.mccabe.max-complexity=10"]
    done = subprocess.run(
        [*command, *limit, "--output-format", "json", "."], cwd=ROOT, capture_output=True, text=True, check=False
    )
    by_rule: dict[str, list[str]] = {}
    for row in json.loads(done.stdout):
        place = f"{Path(row['filename']).relative_to(ROOT)}:{row['location']['row']}"
        by_rule.setdefault(row["code"], []).append(f"{place} {row['message']}")
    return by_rule


def mccabe(line: str) -> int:
    """Return the McCabe complexity in ruff's message."""
    return int(line.rpartition("(")[2].split()[0])


def comments_per_100(paths: list[Path]) -> float:
    """Return the number of lines with a comment per 100 lines."""
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    return 100 * sum("# " in line for line in lines) / max(1, len(lines))
