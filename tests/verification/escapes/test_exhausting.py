from __future__ import annotations

import pytest

from qualgate.sandbox import Sandbox
from tests.depth import with_proofs
from tests.verification.escapes.exhausting import judged
from tests.verification.escapes.hostile import EXHAUSTING


@pytest.mark.parametrize("name", with_proofs(EXHAUSTING, {*EXHAUSTING} - {"a program that raises megabytes"}))
def test_an_answer_exhausts_nobody_who_judges_it(name):
    sandbox = Sandbox.best()
    if sandbox is None:
        pytest.skip("no sandbox holds here")
    found = judged(name, sandbox)
    assert found.score.verdict is False, found.score
    assert len(found.score.reason) < 1_100
    assert found.grown < 64 * 2**20, "it reads a verdict, and nothing of the answer"
    assert found.judge < 300 * 2**20
