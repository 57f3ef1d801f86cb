"""How much of a proof `make test` runs: how many examples of a property, which cases of a list of long ones."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings

DEPTH = float(os.environ.get("QUALGATE_TEST_DEPTH", "0.5"))  # `make verify` sets 1


def examples(count: int) -> settings:
    """On DEPTH times `count` examples: half of them in `make test`, all where it is a proof in `make verify`."""
    return settings(max_examples=max(1, round(count * DEPTH)), deadline=None)


def with_proofs(names: Iterable[Any], proofs: Collection[Any]) -> list[Any]:
    """Parameters of a test: `proofs` take long and are run by `make verify`, the others by `make test`."""
    found = [*names]
    assert set(proofs) < set(found)
    return [pytest.param(name, marks=pytest.mark.proof) if name in proofs else name for name in found]
