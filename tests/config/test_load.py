"""How a gate file says that served arms are loaded; what it may not say is in `test_faults`."""

from __future__ import annotations

import pytest

from qualgate.records import Load
from tests.config.gate_files import SMALL

LOADS = {
    "{seconds: 60}": Load(seconds=60.0),
    "{rate: [2, 0.5], burstiness: 0.25}": Load(concurrency=(), rate=(2.0, 0.5), burstiness=0.25),
    "{rate: [2], concurrency: [8]}": Load(concurrency=(8,), rate=(2.0,)),
}


@pytest.mark.parametrize("said", LOADS)
def test_an_open_loop_is_no_closed_one_unless_both_are_said(load, said):
    assert load(f"{SMALL}load: {said}\n").load == LOADS[said]


def test_a_closed_loop_of_three_levels_is_what_nothing_said_means(load):
    assert load(SMALL).load == Load() == Load(concurrency=(1, 4, 16))


def test_a_trace_stands_beside_the_gate_file(load, tmp_path):
    found = load(f"{SMALL}load: {{trace: said.jsonl, speed: 2, warmup: 40, retries: 1, cancel: 0.1, rounds: 1}}\n")
    assert found.load == Load(
        concurrency=(), trace=str(tmp_path / "said.jsonl"), speed=2.0, warmup=40.0, retries=1, cancel=0.1, rounds=1
    )
