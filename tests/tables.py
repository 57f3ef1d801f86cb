"""Try many small cases in one test: a test of its own costs four milliseconds, which is more than most of them take."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

import pytest


def each_row(
    names: str | tuple[str, ...], table: Collection[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test with each row of `table`, as `pytest.mark.parametrize` would, and fail with all rows that fail.

    Fixtures are the same for all rows: for tests that leave nothing behind.
    """
    wanted = (names,) if isinstance(names, str) else names

    def of_rows(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def tried(**fixtures: Any) -> None:
            assert table, f"no {', '.join(wanted)}"
            failures = []
            for row in table:
                values = dict(zip(wanted, row if len(wanted) > 1 else (row,), strict=True))
                try:
                    test(**fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"row: {values!r:.500}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows fail", failures)

        given = inspect.signature(test)
        fixtures = [parameter for name, parameter in given.parameters.items() if name not in wanted]
        tried.__signature__ = given.replace(parameters=fixtures)
        return tried

    return of_rows
