"""Test the tests that try a table row by row."""

from __future__ import annotations

import pytest

from tests.tables import each_row


@pytest.fixture(scope="module")
def limit() -> int:
    return 5


@each_row(("left", "right"), [(1, 2), (3, 4)])
@each_row("more", [0, 1])
def test_rows_take_the_place_of_parameters_and_leave_fixtures(limit, left, right, more):
    assert left < right <= limit - more


def test_every_row_is_tried_with_every_row_of_the_next_table():
    tried = []
    each_row(("left", "right"), [(1, 2), (3, 4)])(
        each_row("more", [0, 1])(lambda **row: tried.append((*row.values(),)))
    )()
    assert tried == [(1, 2, 0), (1, 2, 1), (3, 4, 0), (3, 4, 1)]


@each_row("fails", [lambda: [][0], lambda: pytest.fail("so")])
def test_all_rows_that_fail_are_named(fails):
    def check(number):
        if number != 2:
            fails()

    with pytest.raises(BaseExceptionGroup, match="2 of 3 rows fail") as caught:
        each_row("number", [1, 2, 3])(check)()
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert notes == ["row: {'number': 1}", "row: {'number': 3}"]


def test_a_table_without_rows_is_refused():
    with pytest.raises(AssertionError, match="no left, right"):
        each_row(("left", "right"), [])(lambda **row: None)()
