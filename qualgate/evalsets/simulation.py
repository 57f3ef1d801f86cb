"""The simulated tools of a set, as text: one Python file beside its YAML, or a folder of them. Nothing runs here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable

Sources = tuple[tuple[str, str], ...]  # path below the folder, as `shop/orders.py`, and text; sorted
MAX_FILES, MAX_BYTES = 200, 4 * 2**20


def read_simulation(path: Path, named: str) -> Sources:
    """What `simulation: named` of the YAML `path` leads to. UsageError, in words, where it cannot be used."""
    home, place = path.parent.resolve(), (path.parent / named).resolve()
    if Path(named).is_absolute() or home not in place.parents:
        raise UsageError(f"{quote(named)} is not below the set's folder: name a file or folder there, as tools.py")
    if not place.exists():
        raise UsageError(f"{quote(named)} is not there: a Python file beside the YAML, or a folder of them")
    return tuple(_texts(place))


def _texts(place: Path) -> Iterator[tuple[str, str]]:
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    if not files or (place.is_file() and place.suffix != ".py"):
        raise UsageError(f"{place.name} is no Python file and holds none")
    left = MAX_BYTES
    for number, file in enumerate(files):
        name = str(file.relative_to(place if place.is_dir() else place.parent))
        if not file.resolve().is_relative_to(place):
            raise UsageError(f"{name} leads out of the folder, to {file.resolve()}")
        try:
            text = file.read_text(encoding="utf-8")
            ast.parse(text)
        except OSError as error:
            raise UsageError(unreadable(file, error)) from None
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise UsageError(f"{name} is no Python: {error}") from None
        left -= len(text)
        if left < 0 or number >= MAX_FILES:
            raise UsageError(f"it is more than {MAX_FILES} files or {MAX_BYTES:,} characters")
        yield name, text
