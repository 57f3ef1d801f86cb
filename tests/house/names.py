"""Find public names that no shipped code uses, and modules with a test file of their name."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

from tests.house.imports import ROOT, parsed

LEAST = 30  # lines of a module that should have a test file
CALLED_BY_OTHERS = re.compile(r"^(upgrade|downgrade|main|serve|visit_\w+|do_\w+)$")


def unnamed(paths: list[Path]) -> list[str]:
    """Return `file:line name` of top-level functions and classes that no other shipped code or setting names."""
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    others = [ROOT / "pyproject.toml", *(ROOT / "app").rglob("*.toml")]
    words = Counter(
        word for text in [*texts.values(), *(path.read_text() for path in others)] for word in re.findall(r"\w+", text)
    )
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in texts
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list
        if words[node.name] == 1 and not CALLED_BY_OTHERS.match(node.name)
    ]


def bound_names(tree: ast.AST) -> list[str]:
    """Return the names that a module binds: parameters, variables, patterns, imports under another name."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    names += [node.name for node in ast.walk(tree) if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name]
    return names + [node.asname for node in ast.walk(tree) if isinstance(node, ast.alias) and node.asname]


def mirrored(paths: list[Path]) -> tuple[int, int]:
    """Return (modules of at least 30 lines with a test file of their name in their room's folder, all such modules)."""
    measured = [path for path in paths if path.name != "__init__.py" and len(path.read_text().splitlines()) >= LEAST]
    of_tests = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}

    def test_of(path: Path) -> Path:
        inside = (
            path.relative_to(ROOT / "qualgate") if path.is_relative_to(ROOT / "qualgate") else path.relative_to(ROOT)
        )
        return inside.with_name(f"test_{inside.name}")

    return sum(test_of(path) in of_tests for path in measured), len(measured)
