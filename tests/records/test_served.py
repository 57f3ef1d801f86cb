"""How a server that is started is told, and which of its modes are recognised."""

from __future__ import annotations

import pytest

from qualgate.records import Served
from qualgate.records.served import invariant_mode

VLLM, SGLANG = "vllm serve m --port {port}", "python -m sglang.launch_server --model m --port {port}"


def test_what_of_the_environment_changes_numbers_is_a_part_of_how_it_is_started():
    around = {"VLLM_BATCH_INVARIANT": "1", "HOME": "/root", "SOME_KEY": "sk-secret"}
    assert Served(command=VLLM).started(around) == f"VLLM_BATCH_INVARIANT=1 {VLLM}"
    assert Served(command=VLLM).started({}) == VLLM
    assert Served(endpoint="http://h/v1").started(around) == ""


@pytest.mark.parametrize(
    ("started", "mode"),
    [
        (f"VLLM_BATCH_INVARIANT=1 {VLLM}", "vLLM's batch-invariant mode (VLLM_BATCH_INVARIANT=1)"),
        (f"env VLLM_BATCH_INVARIANT=1 {VLLM}", "vLLM's batch-invariant mode (VLLM_BATCH_INVARIANT=1)"),
        (
            f"{SGLANG} --enable-deterministic-inference",
            "SGLang's deterministic mode (--enable-deterministic-inference)",
        ),
        (f"VLLM_BATCH_INVARIANT=0 {VLLM}", ""),
        (f"VLLM_BATCH_INVARIANT=1 {SGLANG}", ""),
        (VLLM, ""),
        ("", ""),
    ],
)
def test_modes_in_which_a_row_does_not_depend_on_its_neighbours_are_recognised(started, mode):
    assert invariant_mode(started) == mode
