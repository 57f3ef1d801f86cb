from __future__ import annotations

import pytest

from qualgate import refmodel
from qualgate.engine.speculation.steps import Drafts
from tests.benchmarks import ours, pass_times
from tests.benchmarks.pass_times import Wrong
from tests.benchmarks.speculating import answered, fates


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    return ours.load("baseline", refmodel.PATH, tmp_path_factory.mktemp("cache"))


def test_wrong_drafts_are_verified_and_never_accepted(arm):
    prompts = pass_times._prompts(arm, 2, 20, 12)
    alone = answered(arm, prompts, batch=2)
    told = answered(arm, prompts, batch=2, drafts=Drafts(Wrong(pass_times._never(arm)), 3, []))
    assert told.tokens == alone.tokens
    [fate] = fates([told])
    assert fate.accepted == 0
    assert fate.proposed == 2 * (3 * 8 + 2 + 1)  # of each: 11 passes behind the first token, the last with less room


def test_a_run_ends_after_as_many_passes_as_are_wanted(arm):
    told = answered(arm, pass_times._prompts(arm, 3, 10, 50), batch=3, most=7)
    assert len(told.passes) == 7
