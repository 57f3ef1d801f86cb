"""Read the simulated tools of a set as text: one Python file beside its YAML, or a folder. Nothing runs here."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from qualgate.documents import quote
from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable

Sources = tuple[tuple[str, str], ...]  # path below the folder, as `shop/orders.py`, and text; sorted
MAX_FILES, MAX_BYTES = 200, 4 * 2**20
TAKEN = sys.stdlib_module_names | {"inside"}  # the sandbox's own


def read_simulation(path: Path, named: str) -> Sources:
    """Read the files that `simulation: named` in the YAML `path` names. UsageError if they cannot be used."""
    home, source = path.parent.resolve(), _resolved(path.parent / named, named)
    if Path(named).is_absolute() or home not in source.parents:
        raise UsageError(f"{quote(named)} is outside the set's folder: name a file or folder in it, such as tools.py")
    if not source.exists():
        raise UsageError(f"{quote(named)} does not exist: name a Python file beside the YAML, or a folder of them")
    return tuple(_source_texts(source))


def _resolved(path: Path, named: str) -> Path:
    """Resolve links in a path. named: how the user writes it, for the UsageError of a link that leads to itself."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        raise UsageError(f"{quote(named)} is a link that points to itself") from None


def _source_texts(source: Path) -> Iterator[tuple[str, str]]:
    """Yield (name below the folder, text) of each Python file in a folder, or of a single file.

    UsageError for a file that leads out of the folder, hides a module of Python's own, is no Python, or one too many.
    """
    files = sorted(source.rglob("*.py")) if source.is_dir() else [source]
    if not files or (not source.is_dir() and (source.suffix != ".py" or not source.is_file())):
        raise UsageError(f"{source.name} is not a Python file, nor a folder with one")
    bytes_left = MAX_BYTES
    for number, file in enumerate(files):
        name = str(file.relative_to(source if source.is_dir() else source.parent))
        if not (target := _resolved(file, name)).is_relative_to(source):
            raise UsageError(f"{name} points out of the folder, to {target}")
        if not file.is_file():
            raise UsageError(f"{name} is not a regular file")
        if (top := name.removesuffix(".py").partition("/")[0]) in TAKEN:
            raise UsageError(f"{name}: {top} is a module of the standard library; rename it")
        try:
            bytes_left -= file.stat().st_size
            if bytes_left < 0 or number >= MAX_FILES:
                raise UsageError(f"`simulation` holds more than {MAX_FILES} files or {MAX_BYTES:,} bytes")
            text = file.read_text(encoding="utf-8-sig")
            ast.parse(text)
        except OSError as error:
            raise UsageError(unreadable(file, error)) from None
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise UsageError(f"{name} is not valid Python: {error}") from None
        yield name, text
