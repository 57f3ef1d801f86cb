"""What verifying costs: rows and rounds by hand, and a small measurement whose shape is right."""

from __future__ import annotations

import json

import pytest

from qualgate_kernels import cpu
from tests.benchmarks.shape import Benchmark
from tests.benchmarks.verify_cost import MOST, ROWS, Cost, costs, target_bandwidth, verify

BENCH = Benchmark(name="drawn", about="", goals={"target_bandwidth": "share", "verify": "v(8)"})


def cost(format: str, threads: int, one: list[float], eight: list[float]) -> Cost:
    return Cost(
        format=format, threads=threads, nbytes=1000, weights=100,
        passes={1: one, 8: eight}, read=[1.0, 1.5, 2.0], multiply_add=[0.001, 0.002, 0.005],
    )  # fmt: skip


def test_a_round_is_held_against_itself_and_what_is_told_is_the_middle_one():
    found = cost("mxfp4", 2, [2.0, 2.0, 4.0], [3.0, 5.0, 6.0])
    assert found.times(8) == [1.5, 2.5, 1.5]
    assert found.share == [0.5, 0.75, 0.5]
    assert found.least(8) == [0.5, pytest.approx(0.8), 1.0]  # bound by reading, by multiplying, by multiplying
    row = verify(BENCH, [found])
    assert row["measured"] == {"mxfp4, threads 2": 1.5}
    assert row["spread"] == {"mxfp4, threads 2": [1.5, 2.5]}
    assert row["least"] == {"mxfp4, threads 2": pytest.approx(0.8)}
    assert row["met"]
    assert found.shown["read_gb_per_s"] == pytest.approx(1000 / 1.5 / 1e9)
    assert found.shown["one_row_gb_per_s"] == pytest.approx(500 / 1e9)
    assert found.shown["gmadd_per_s"] == pytest.approx(5e-7)
    assert json.loads(json.dumps(found.shown)) == found.shown


def test_the_bandwidth_is_the_bfloat16_targets_on_its_worst_number_of_threads():
    fast, slow = (cost("bfloat16", threads, one, [9.0] * 3) for threads, one in ((1, [1.0, 1.5, 2.0]), (2, [2.0] * 3)))
    packed = cost("mxfp4", 1, [20.0] * 3, [20.0] * 3)
    row = target_bandwidth(BENCH, [fast, slow, packed])
    assert (row["measured"], row["threads"], row["spread"], row["met"]) == (0.75, 2, [0.5, 1.0], True)
    assert target_bandwidth(BENCH, [fast])["measured"] == 1
    assert not target_bandwidth(BENCH, [cost("bfloat16", 1, [3.0] * 3, [9.0] * 3)])["met"]


@pytest.mark.skipif(not cpu.paths(), reason="no compiled kernels")
def test_a_small_measurement_has_every_format_row_and_round(capsys):
    found = costs(rounds=2, side=256, walked=2**18)
    assert [one.format for one in found if one.threads == 1] == list(MOST)
    for one in found:
        assert tuple(one.passes) == ROWS
        assert one.weights == 256 * 256
        every = [*one.passes.values(), one.read, one.multiply_add]
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in every)
    sizes = {one.format: one.nbytes for one in found}
    assert sizes == {"bfloat16": 2 * 65536, "int4": 32768 + 2 * 2048, "mxfp4": 32768 + 2048}
    assert "verify cost" in capsys.readouterr().err
