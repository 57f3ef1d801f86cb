from __future__ import annotations

import pytest

from qualgate.scoring.json_value import depth, identity


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True), (1, True, False), (0, False, False), ("5", 5, False), (None, False, False), ([], {}, False),
        ([1, 2], [2, 1], False), ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}, True), ([[]], [], False), ("a", "A", False),
        ([True], [1], False), ({"a": None}, {}, False), (10**30, 1e30, False), (0.0, -0.0, True),
        ([["true"]], [True], False),
    ],
)  # fmt: skip
def test_values_are_compared_as_json(one, other, same):
    assert (identity(one) == identity(other)) is same


def test_depth_counts_levels():
    assert [depth(value) for value in (1, [], {"a": []}, [[{"a": 1}], 2])] == [0, 0, 1, 3]
