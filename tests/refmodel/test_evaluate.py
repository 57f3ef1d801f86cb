"""What the model card says is measured as the gate measures it."""

from __future__ import annotations

import pytest

from qualgate.refmodel.training.evaluate import is_json


@pytest.mark.parametrize(
    ("text", "read"),
    [('{"a": [1]}', True), ("", False), ("{", False), ('{"a": NaN}', False), ('{"a": 1, "a": 1}', False)],
)
def test_json_is_what_the_strict_reader_takes(text: str, read: bool) -> None:
    assert is_json(text) is read
