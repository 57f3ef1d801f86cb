"""Parameters of a test that takes long: `make test` runs one shape, the proofs all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_shape(first: Any, *others: Any) -> Iterable[Any]:
    """The first for `make test`, the others as proofs. A shape of several arguments is a tuple."""
    return [first, *(pytest.param(*_arguments(one), marks=pytest.mark.proof) for one in others)]


def _arguments(shape: Any) -> tuple[Any, ...]:
    return shape if isinstance(shape, tuple) else (shape,)
