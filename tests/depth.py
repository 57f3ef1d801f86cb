"""How many examples a property is tried on."""

from __future__ import annotations

import os

from hypothesis import settings

DEPTH = int(os.environ.get("QUALGATE_TEST_DEPTH", "1"))  # `make verify` sets 5


def examples(count: int) -> settings:
    """On `count` examples in `make test`, on DEPTH times as many in `make verify`."""
    return settings(max_examples=count * DEPTH, deadline=None)
