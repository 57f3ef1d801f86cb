"""How deep a test looks: how many examples of a property, which cases of a list of long ones.

`make test` draws 20 examples of a property, `make verify` 500, or as many as the property names where one is dear.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

DEEP = os.environ.get("QUALGATE_TEST_DEPTH") == "1"  # `make verify` sets it
FEW, MANY = 20, 500


def examples(count: int, few: int = FEW) -> settings:
    """`count` examples in `make verify`; in `make test` a few of them. few: more where fewer let mutants live."""
    return settings(max_examples=count if DEEP else min(few, count), deadline=None)


def with_proofs(names: Iterable[Any], proofs: Collection[Any]) -> list[Any]:
    """Parameters of a test: `proofs` take long and are run by `make verify`, the others by `make test`."""
    found = [*names]
    assert set(proofs) < set(found)
    return [pytest.param(name, marks=pytest.mark.proof) if name in proofs else name for name in found]
