from __future__ import annotations

import pytest

from qualgate.report.formats import FORMATS
from tests.verification.verdicts.determinism_report import repetitions


@pytest.mark.proof
def test_jobs_recorded_in_another_order_give_the_same_bytes_in_every_format():
    first, *others = repetitions(3)
    assert first["digests"].keys() == set(FORMATS)
    assert [one["digests"] for one in others] == [first["digests"]] * 2
    assert len({tuple(one["jobs"]) for one in (first, *others)}) == 3
