"""Which of our modules imports which, as the syntax says: also under TYPE_CHECKING, inside functions, and by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {
    "qualgate": ROOT / "qualgate",
    "qualgate_kernels": ROOT / "kernels" / "qualgate_kernels",
    "qualgate_app": ROOT / "app",
    "qualgate_migrations": ROOT / "migrations",
    "qualgate_evalsets": ROOT / "evalsets",
}


def modules() -> dict[str, Path]:
    """Name of each module that is shipped → its file. All files are walked: ask once."""
    found = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            found[name] = path
    return found


def imported(name: str, path: Path, known: set[str]) -> set[str]:
    """Our own modules that a file imports, wherever in it. `import_module` of a text counts as what it names; of a text
    that begins with a package, as every module of it."""
    found: set[str] = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    if "import_module" in path.read_text(encoding="utf-8"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and _called(node) == "import_module" and node.args:
                begin = _beginning(node.args[0], name)
                found |= {m for m in known if m == begin or (begin.endswith(".") and m.startswith(begin))}
    return (found & known) - {name}


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node, without the expressions in it, which are nine tenths of a syntax tree."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            left += getattr(node, part, ())


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _beginning(text: ast.expr, name: str) -> str:
    """What is known of a text: all of a constant, else all up to the first part that is not."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    said = ""
    for part in text.values if isinstance(text, ast.JoinedStr) else ():
        if isinstance(part, ast.Constant):
            said += str(part.value)
        elif isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "__name__":
            said += name
        else:
            break
    return said


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax of a file, which several rows look through."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def graph() -> dict[str, set[str]]:
    """Module → modules that it imports."""
    found = modules()
    known = set(found)
    return {name: imported(name, path, known) for name, path in found.items()}


def circles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Circles, one after the other, each cut at its last arrow before the next is looked for."""
    left = {name: set(targets) for name, targets in edges.items()}
    while True:
        try:
            tuple(TopologicalSorter(left).static_order())
            return
        except CycleError as error:
            circle = error.args[1]  # each is imported by the next
            yield circle[::-1]
            left[circle[1]].discard(circle[0])


def floors(edges: dict[str, set[str]]) -> int:
    """Of a graph without circles: how many levels of imports stand on each other."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        height[name] = 1 + max((height[target] for target in edges.get(name, ())), default=0)
    return max(height.values(), default=0)
