from __future__ import annotations

import pytest
import torch

from qualgate.errors import InfrastructureError
from tests.benchmarks import gpu_products as bench
from tests.benchmarks.__main__ import run_benchmark


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to measure")
def test_without_a_gpu_the_benchmark_is_no_result_but_an_error_of_the_machinery():
    with pytest.raises(InfrastructureError, match="no GPU is there"):
        run_benchmark("gpu", quick=True)


def rounds(**changed: float) -> list[dict]:
    """What a GPU with a copy bandwidth of 4 TB/s might have said."""
    seconds = {"ours": 10e-6, "ours in 1": 12e-6, "torch bf16": 40e-6, "torch int4": 15e-6} | changed
    size = int(0.8 * 4e12 * 10e-6)
    return [
        {"shape": name, "rows": rows, "round": number, "copy": 4e12, "copy after": 4e12, "bytes": size,
         "left_out": {"gemlite": "not there", "marlin": "not there"}, **seconds}
        for name in bench.SHAPES for rows in bench.ROWS for number in range(3)
    ]  # fmt: skip


def test_goals_are_ratios_of_medians_at_the_worst_number_of_rows():
    met = {row["id"]: (round(row["measured"], 3), row["met"]) for row in bench._goals(rounds())}
    assert list(met) == list(bench.GOALS)
    assert met["int4_8192_bandwidth"] == (0.8, True)
    assert met["int4_28672_bf16"] == (4.0, True)
    assert met["int4_8192_best"] == (1.5, True)
    assert met["verify_cost"] == (1.0, True)
    assert met["invariance_tax"] == (0.0, True)
    slow = rounds()
    for one in slow:
        if one["rows"] == 8:
            one["ours"] *= 2
    missed = {row["id"]: row["met"] for row in bench._goals(slow)}
    assert set(missed.values()) == {False}


def test_an_unsteady_machine_has_measured_nothing():
    shaken = rounds()
    for one in shaken:
        one["copy after"] *= 0.8
    assert {row["met"] for row in bench._goals(shaken)} == {None}
