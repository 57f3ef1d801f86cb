"""Programs that want a pass they have not earned, or a way out, and honest ones beside them: the texts of `programs/`.

FORGERIES do not compute what FORGERY_TESTS ask for (x * x + 1); each tries to be called right all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def _read(name: str) -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "programs" / f"{name}.yaml").read_text(encoding="utf-8"))


FORGERIES: dict[str, str] = _read("forgeries")
FORGERY_TESTS: dict[str, str] = _read("forgery_tests")
FORGERY_CASES: dict[str, dict[str, Any]] = {  # the same asked for by every kind of test, as a case has it
    **{kind: {"tests": tests, "entry_point": "f"} for kind, tests in FORGERY_TESTS.items()},
    "calls": {"fn_name": "f", "tests": [{"args": [3], "returns": 10}, {"args": [0], "returns": 1}]},
    "inputs and outputs": {"tests": [{"stdin": "3", "stdout": "10"}, {"stdin": "0", "stdout": "1"}]},
    "a reference": {"entry_point": "f", "canonical_solution": "def f(x): return x * x + 1", "base_input": [[3], [0]]},
}

_escapes, _honest = _read("escapes"), _read("honest")
TRIES: str = _escapes["tries"]
ESCAPES: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (one["program"], tuple(one["may_end_by"])) for name, one in _escapes["programs"].items()
}
"""program → (text, the words it may end with: an Ended's error type or the exception that its reply names)"""
EXHAUSTING: dict[str, tuple[str, str]] = {
    name: (one["tests"], one["program"]) for name, one in _read("exhausting").items()
}
"""name → (tests, program)"""
HONEST: dict[str, str] = _honest["programs"]
HONEST_TESTS: str = _honest["tests"]
