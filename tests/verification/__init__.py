"""Proofs and attacks: is the gate's word right (`verdicts`), do scorers and statistics say what the field's references
say (`references`), does the sandbox hold (`escapes`), is a GPU kernel what it was written to be
(`machine_code`), is calibration worth its data (`methods`), has an answer the bits that it has alone (`exactness`), and
the distribution that it has without speculation (`lossless`); are served arms judged by what they are (`served`);
and what do engines of others cost that qualgate runs on (`service`)?

`python -m tests.benchmarks NAME` runs one of `PROOFS` in whole, `python -m tests.verification` slices of all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.verification.goals import PROOFS

__all__ = ["PROOFS", "run_of"]


def run_of(name: str) -> Callable[..., dict[str, Any]]:
    """`run(quick)` of a proof, or `run(quick, only)` where it has parts; only its modules are loaded."""
    match name:
        case "architectures":
            from tests.verification.references.architectures import run
        case "combinations":
            from tests.verification.exactness.combinations import run
        case "decisions":
            from tests.verification.verdicts.decisions import run
        case "determinism-report":
            from tests.verification.verdicts.determinism_report import run
        case "exact":
            from tests.verification.exactness.exact import run
        case "first-hour":
            from tests.verification.first_hour.first_hour import run
        case "folders":
            from tests.verification.references.folders import run
        case "lossless":
            from tests.verification.lossless.lossless import run
        case "quantize":
            from tests.verification.methods.quantize import run
        case "scoring":
            from tests.verification.references.scoring import run
        case "served":
            from tests.verification.served.served import run
        case "served-arithmetic":
            from tests.verification.references.served_arithmetic import run
        case "service":
            from tests.verification.service.service import run
        case "static":
            from tests.verification.machine_code.static import run
        case _:
            raise AssertionError(f"{name} has no module")
    return run
