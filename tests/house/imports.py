"""Find which of our modules imports which from the syntax: also under TYPE_CHECKING, in functions, and by name."""

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
    """Return the name of each shipped module → its file. Walks all files, so call it once."""
    paths = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            paths[name] = path
    return paths


def imported(name: str, path: Path, known: set[str]) -> set[str]:
    """Return our own modules that a file imports, anywhere in it, by statements or by name."""
    return stated(name, path, known) | _by_name(name, path, known)


def stated(name: str, path: Path, known: set[str]) -> set[str]:
    """Return our own modules that a file imports by statements."""
    names: set[str] = set()
    for node in statements(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(node, name, path)
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                names.add(inner if inner in known else module)
    return (names & known) - {name}


def _by_name(name: str, path: Path, known: set[str]) -> set[str]:
    """Return the modules that `import_module` loads: the one of a constant name, or with a text that begins with a
    package, every module of that package."""
    if "import_module" not in path.read_text(encoding="utf-8"):
        return set()
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and _called(node) == "import_module" and node.args:
            begin = _beginning(node.args[0], name)
            names |= {m for m in known if m == begin or (begin.endswith(".") and m.startswith(begin))}
    return names - {name}


def _absolute(node: ast.ImportFrom, name: str, path: Path) -> str:
    """Return the full name of the module that a statement imports from, also of `from .inner import …`."""
    if not node.level:
        return node.module or ""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    return ".".join([*package[: len(package) - node.level + 1], *filter(None, [node.module])])


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement below a node, skipping expressions, which are nine tenths of a syntax tree."""
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
    """Return the constant beginning of a text expression."""
    if isinstance(text, ast.Constant):
        return str(text.value)
    prefix = ""
    for part in text.values if isinstance(text, ast.JoinedStr) else ():
        if isinstance(part, ast.Constant):
            prefix += str(part.value)
        elif isinstance(part, ast.FormattedValue) and ast.unparse(part.value) == "__name__":
            prefix += name
        else:
            break
    return prefix


@cache
def parsed(path: Path) -> ast.Module:
    """Parse a file; cached, since several rows need it."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def graph() -> dict[str, set[str]]:
    """Return each module → the modules that it imports."""
    paths = modules()
    known = set(paths)
    return {name: imported(name, path, known) for name, path in paths.items()}


def circles(edges: dict[str, set[str]]) -> Iterator[list[str]]:
    """Yield import circles, each cut at its last arrow before the search for the next."""
    left = {name: set(targets) for name, targets in edges.items()}
    while True:
        try:
            tuple(TopologicalSorter(left).static_order())
            return
        except CycleError as error:
            circle = error.args[1]  # each module is imported by the next
            yield circle[::-1]
            left[circle[1]].discard(circle[0])


def floors(edges: dict[str, set[str]]) -> int:
    """Return the number of import levels of a graph without circles."""
    height: dict[str, int] = {}
    for name in TopologicalSorter(edges).static_order():
        height[name] = 1 + max((height[target] for target in edges.get(name, ())), default=0)
    return max(height.values(), default=0)
