"""What a run keeps of servers that answer for its arms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import IntegrityError
from qualgate.records import Generation, Served
from qualgate.store import runs
from tests.store.made import make_plan, make_results

PLAN = make_plan(cases=4, job_rows=8)


def test_a_run_that_is_resumed_is_not_answered_by_another_engine(store):
    """Of a server that the run starts only its command is planned, and an upgrade leaves that as it was."""
    served = Served(command="vllm serve m --port {port}", engine="vllm")
    plan = replace(PLAN, arms=(replace(PLAN.arms[0], served=served), *PLAN.arms[1:]))
    run_id = runs.begin(store, plan).run_id
    first, second = [(result, said) for result, said in make_results(plan) if result.arm == "baseline"][:2]

    def record(one, version: str) -> None:
        runs.record(store, run_id, replace(one[0], generation=Generation(engine=f"vllm {version}", tokens=1)), one[1])

    record(first, "0.31.0")
    with pytest.raises(IntegrityError, match=r"'vllm 0.32.0' answers now, and 'vllm 0.31.0' answered earlier"):
        record(second, "0.32.0")
    record(second, "0.31.0")
    assert runs.evidence(store, run_id).baseline.generation.engine == "vllm 0.31.0"
