"""The rows of the table: what is measured, its goal where it has one, and the places that miss it."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.house import opened
from tests.house.functions import comments_per_100, functions, mccabe, ruled, too_long
from tests.house.imports import ROOT, circles, floors, graph, modules, parsed, stated
from tests.house.names import bound_names, mirrored, unnamed
from tests.house.rooms import may_import, room

HOUSE_WORDS = frozenset(("found", "one", "said", "told", "asked", "held", "kept"))
FEATURES = (
    ("budget", r"\bbudget", "<= 10"),
    ("trial", r"\btrials?\b", "<= 8"),
    ("four arms", r"four[_ -]arm", "<= 20"),
    ("speculation", r"speculat|\bdrafts?\b", "<= 70"),
)
# Where a feature's word is another term of the field: Bernoulli trials, and the repetitions of an experiment.
OTHER_TERMS = {"trial": ("qualgate/stats/", "qualgate/gate/planning/", "/determinism.py")}
MOST_LINES = 450  # of a module
LINES_BEFORE = 60_878  # of Python in the wheel, at commit 7871ea0, before the proofs left it: 87.3 % when they had


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of the table. met: None if the row has no goal to meet. places: what misses the goal."""

    what: str
    measured: float | int | str
    goal: str = ""
    met: bool | None = None
    places: tuple[str, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """Return the row for JSON."""
        return asdict(self)


def rows() -> list[Row]:
    """Return every row, in the order of the table."""
    shipped = modules()
    paths = sorted(shipped.values())
    return [*_sizes(shipped), *_imports(), *_functions(paths), *_words(paths), *_wheel(shipped),
            *_tests(paths), *_pages()]  # fmt: skip


def _most(what: str, measured: float, most: float, places: Sequence[str] = ()) -> Row:
    return Row(what=what, measured=measured, goal=f"<= {most:g}", met=measured <= most, places=tuple(places))


def _none(what: str, places: Sequence[str]) -> Row:
    return Row(what=what, measured=len(places), goal="0", met=not places, places=tuple(places))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _sizes(shipped: dict[str, Path]) -> list[Row]:
    proofs = sorted((ROOT / "tests" / "verification").rglob("*.py"))
    lines = {path.relative_to(ROOT).as_posix(): _lines(path) for path in [*shipped.values(), *proofs]}
    of_shipped = [lines[path.relative_to(ROOT).as_posix()] for path in shipped.values()]
    doors = [
        path.name
        for path in (ROOT / "qualgate").iterdir()
        if (path.suffix == ".py" and not path.name.startswith("__")) or (path / "__init__.py").is_file()
    ]
    return [
        _most("median module, lines", median(of_shipped), 110),
        Row(what="modules", measured=len(of_shipped)),
        _none("modules over 450 lines", [f"{n} {name}" for name, n in sorted(lines.items()) if n > MOST_LINES]),
        Row(what="modules over 300 lines", measured=sum(n > 300 for n in of_shipped)),
        _most("run.py, lines", lines["qualgate/run.py"], 120),
        _most("entries in qualgate/", len(doors), 24),
    ]


def _imports() -> list[Row]:
    edges = graph()
    upward = [
        f"{name} imports {target}"
        for name, targets in sorted(edges.items())
        for target in sorted(targets)
        if not may_import(name, target)
    ]
    between = {(room(a), room(b)) for a, targets in edges.items() for b in targets if room(a) != room(b)}
    by_room: dict[str, set[str]] = {}
    for a, b in between:
        by_room.setdefault(a, set()).add(b)
    paths = modules()
    counts = {name: len(stated(name, path, set(paths))) for name, path in paths.items()}
    of_rooms = [" -> ".join(circle) for circle in circles(by_room)]
    return [
        _none("circles of modules", [" -> ".join(circle) for circle in circles(edges)]),
        _none("circles of rooms", of_rooms),
        _none("upward arrows", upward),
        _most("rooms", len({room(name) for name in edges}), 28),
        Row(what="floors", measured="?" if of_rooms else floors(by_room), goal="<= 9"),
        Row(what="arrows between rooms", measured=len(between)),
        Row(what="imports", measured=sum(map(len, edges.values()))),
        Row(what="modules that run.py imports", measured=len(edges["qualgate.run"])),
        _most(
            "most imports of a module",
            max(counts.values()),
            22,
            [f"{n} {name}" for name, n in counts.items() if n > 22],
        ),
    ]


def _functions(paths: list[Path]) -> list[Row]:
    every, by_rule = functions(paths), ruled()
    public = [function for function in every if function.public]
    tangled = by_rule.get("C901", [])
    return [
        Row(what="functions", measured=len(every)),
        Row(what="median function, lines", measured=median(function.lines for function in every)),
        Row(what="fully typed, %", measured=round(100 * sum(f.typed for f in every) / len(every), 1)),
        Row(what="with a docstring, %", measured=round(100 * sum(f.documented for f in every) / len(every), 1)),
        Row(what="public ones, %", measured=round(100 * sum(f.documented for f in public) / len(public), 1)),
        _none("functions over 60 lines", too_long(every)),
        _none("McCabe over 15", [line for line in tangled if mccabe(line) > 15]),
        Row(what="McCabe over 10", measured=len(tangled)),
        _none("over 8 parameters", by_rule.get("PLR0913", [])),
        _none(
            "public names without a docstring",
            [line for rule, lines in by_rule.items() if rule.startswith("D") for line in lines],
        ),
        Row(what="lines with a comment, of 100", measured=round(comments_per_100(paths), 1)),
        Row(what="# fmt: skip", measured=sum(path.read_text(encoding="utf-8").count("# fmt: skip") for path in paths)),
    ]


def _words(paths: list[Path]) -> list[Row]:
    """Open goals of plain words have no `met`: the table shows how far they are."""
    trees = {path: parsed(path) for path in paths}
    bound = sum(name in HOUSE_WORDS for tree in trees.values() for name in bound_names(tree))
    what = [
        path.relative_to(ROOT).as_posix()
        for path, tree in trees.items()
        if re.match(r"What |[^\n]*\bof all\.$", ast.get_docstring(tree) or "")
    ]
    return [
        _most("house words bound as names", bound, 300),
        _none('module docstrings that begin with "What"', what),
        *(
            Row(what=f"files that know {feature}", measured=len(knowing(paths, feature, words)), goal=goal)
            for feature, words, goal in FEATURES
        ),
    ]


def knowing(paths: list[Path], feature: str, words: str) -> list[str]:
    """Return the files whose text has a word of the feature, in the feature's sense."""
    names = {path: path.relative_to(ROOT).as_posix() for path in paths}
    return [
        name
        for path, name in names.items()
        if not any(place in name for place in OTHER_TERMS.get(feature, ()))
        and re.search(words, path.read_text(encoding="utf-8"), re.IGNORECASE)
    ]


def _wheel(shipped: dict[str, Path]) -> list[Row]:
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    lines = sum(_lines(path) for name, path in shipped.items() if {name, name.rpartition(".")[0]} & set(packages))
    counts = opened.by_python()
    return [
        _none("proofs or attacks in the wheel", [name for name in packages if name.startswith("tests")]),
        Row(what="Python lines in the wheel, % of before", measured=round(100 * lines / LINES_BEFORE, 1), goal="88"),
        _none("files that a plan opens twice", [f"{name}: {n} times" for name, n in sorted(counts.items()) if n > 1]),
    ]


def _tests(paths: list[Path]) -> list[Row]:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    written = sum(len(re.findall(r"^ *def test_", path.read_text(encoding="utf-8"), re.MULTILINE)) for path in tests)
    lost = unnamed(paths)
    mirrors, total = mirrored(paths)
    benchmarks = sum(map(_lines, (ROOT / "tests" / "benchmarks").rglob("*.py")))
    return [
        Row(what="Python outside tests, lines", measured=_shipped_lines(), goal="<= 85000"),
        Row(what="tests without benchmarks, lines", measured=sum(map(_lines, tests)) - benchmarks, goal="<= 80000"),
        _most("tests/benchmarks, lines", benchmarks, 7000),
        Row(what="test functions", measured=written),
        Row(what="modules with a test file of their name", measured=f"{mirrors} of {total}"),
        Row(what="names that nothing shipped names again", measured=len(lost), places=tuple(lost)),
        _none(
            "test files over 450 lines", [f"{_lines(p)} {p.relative_to(ROOT)}" for p in tests if _lines(p) > MOST_LINES]
        ),
    ]


def _shipped_lines() -> int:
    folders = ("qualgate", "app", "migrations", "evalsets", "kernels", "docs")
    return sum(_lines(path) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _prose(text: str) -> list[int]:
    """Count the words of each sentence outside code, tables and headings."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    lines = [line for line in plain.splitlines() if not line.startswith(("#", "|", "!", "<"))]
    sentences = re.split(r"(?<=[.!?:])\s+", " ".join(lines))
    return [len(sentence.split()) for sentence in sentences if len(sentence.split()) > 2]


def _pages() -> list[Row]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    words = _prose(readme)
    return [
        _most("README, bytes", (ROOT / "README.md").stat().st_size, 10_000),
        Row(what="README, sections", measured=readme.count("\n## ")),
        Row(what="README, words a sentence", measured=round(sum(words) / len(words), 1)),
        Row(what="README, sentences over 30 words", measured=f"{sum(n > 30 for n in words)} of {len(words)}"),
        _most("ARCHITECTURE, bytes", (ROOT / "ARCHITECTURE.md").stat().st_size, 20_000),
        _most("CHANGELOG, bytes", (ROOT / "CHANGELOG.md").stat().st_size, 12_000),
        Row(
            what="docs/ without generated pages, bytes",
            measured=sum(path.stat().st_size for path in (ROOT / "docs").glob("*.md")),
            goal="<= 170000",
        ),
        Row(what="pages in docs/", measured=len([*(ROOT / "docs").rglob("*.md")])),
    ]
