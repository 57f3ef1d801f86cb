"""Where the proofs are: a checkout holds them in `tests/verification` beside this package, a wheel does not."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
PROOFS = (
    "architectures", "combinations", "decisions", "determinism-report", "exact", "first-hour", "lossless", "quantize",
    "scoring", "served", "served-arithmetic", "service", "static",
)  # fmt: skip
NOT_HERE = (
    "proofs stand in tests/verification of a checkout and not in an installed wheel; "
    "there `make install`, then `.venv/bin/qualgate bench NAME`"
)


def proofs() -> ModuleType | None:
    """The package `tests.verification` (its `PROOFS` and `run_of`); None where this is no checkout."""
    if not (ROOT / "tests" / "verification" / "__init__.py").is_file():
        return None
    if sys.path[:1] != [str(ROOT)]:
        sys.path.insert(0, str(ROOT))  # before whoever else installed a package called tests
    return import_module("tests.verification")  # by its name: the product knows of no test
