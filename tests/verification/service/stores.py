"""Empty stores of either kind, for as long as they are measured."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.postgresql import server

KINDS = ("file", "postgresql")


@contextmanager
def kinds_of_stores(wanted: Collection[str] = KINDS) -> Iterator[dict[str, Callable[..., str]]]:
    """Kind → what gives the address of a new one. Where no PostgreSQL is installed there is no such kind."""
    numbers = count()
    with tempfile.TemporaryDirectory() as folder:
        kinds: dict[str, Callable[..., str]] = {"file": lambda: f"sqlite:///{Path(folder) / f'{next(numbers)}.db'}"}
        try:
            if "postgresql" in wanted:
                kinds["postgresql"] = server().new_database
        except BaseException as error:  # pytest's own word for a test that is skipped
            if type(error).__name__ != "Skipped":
                raise
        yield kinds


@contextmanager
def new_stores() -> Iterator[dict[str, str]]:
    """Kind → address of a new one."""
    with kinds_of_stores() as kinds:
        yield {kind: new() for kind, new in kinds.items()}
