"""An engine that drafts, for what a four-arm run needs beside it: blocks, parity, a store that keeps the counts.

Our own does not speculate yet. Its answers are what speculation would give, as that changes none; counts are made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from qualgate import run as main_path
from qualgate.pipeline import check_drafts
from qualgate.records import ArmSpec, JobResult
from qualgate.workers.pool import run_jobs


@contextmanager
def drafting(*names: str) -> Iterator[None]:
    """The arms of these names speculate: of each three tokens that their draft proposes, two are kept."""

    def speculates(arm: ArmSpec) -> bool:
        return arm.name in names

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        for outcome in run_jobs(*arguments, **options):
            if not isinstance(outcome, JobResult) or outcome.arm not in names:
                yield outcome
                continue
            completions = (
                replace(said, draft_proposed=3 * len(said.token_ids), draft_accepted=2 * len(said.token_ids))
                for said in outcome.completions
            )
            yield replace(outcome, completions=tuple(completions))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check_drafts, "speculates", speculates)
        patch.setattr(main_path, "run_jobs", counted)
        yield
