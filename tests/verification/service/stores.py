"""Empty stores of either kind, for as long as they are measured."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.postgresql import server


@contextmanager
def new_stores() -> Iterator[dict[str, str]]:
    """Kind → address. Where no PostgreSQL is installed there is no such."""
    with tempfile.TemporaryDirectory() as folder:
        found = {"file": f"sqlite:///{Path(folder) / 'q.db'}"}
        try:
            found["postgresql"] = server().new_database()
        except BaseException as error:  # pytest's own word for a test that is skipped
            if type(error).__name__ != "Skipped":
                raise
        yield found
