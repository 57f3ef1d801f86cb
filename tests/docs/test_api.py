"""The page on the Python API names every function there is."""

from __future__ import annotations

import qualgate
from tests.docs.blocks import ROOT


def test_every_function_of_the_api_is_on_its_page():
    page = (ROOT / "docs" / "python-api.md").read_text(encoding="utf-8")
    functions = [name for name in qualgate.__all__ if name.islower()]
    assert functions
    assert [name for name in functions if name not in page] == []
