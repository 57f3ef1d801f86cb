"""An engine that drafts, for what a four-arm run needs beside it: blocks, parity, a store that keeps what was drafted.

Its answers are what speculation would give, as that changes none; what became of drafts is made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from qualgate.pipeline import four_arm, generating
from qualgate.records import ArmSpec, JobResult
from qualgate.workers.pool import run_jobs
from tests.drafts import with_drafts


@contextmanager
def drafting(*names: str) -> Iterator[None]:
    """The arms of these names speculate, and tell their passes as `tests.drafts` makes them up."""

    def speculates(arm: ArmSpec) -> bool:
        return arm.name in names

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for outcome in run_jobs(*arguments, **options):
            if not isinstance(outcome, JobResult) or outcome.arm not in names:
                yield outcome
                continue
            yield with_drafts(outcome)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(four_arm, "speculates", speculates)
        patch.setattr(generating, "run_jobs", counted)
        yield
