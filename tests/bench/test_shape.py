from __future__ import annotations

import subprocess
import sys

import pytest

from qualgate.bench import BENCHMARKS, run_benchmark
from qualgate.bench.memory import measure
from qualgate.bench.shape import GOALS, described, goal, told
from qualgate.errors import UsageError


def test_every_benchmark_has_a_goal_table_and_a_module():
    assert set(BENCHMARKS) == set(GOALS)
    for name in BENCHMARKS:
        __import__(f"qualgate.bench.{name.replace('-', '_')}")


def test_a_result_without_a_row_of_its_table_is_refused():
    rows = [goal("commands", id, 0.1, met=True) for id in GOALS["commands"]]
    assert described("commands", rounds=[], goals=rows)["goals"] == rows
    with pytest.raises(AssertionError, match="dashboard_first_page"):
        described("commands", rounds=[], goals=rows[:-1])


def test_a_row_that_was_not_run_has_no_verdict_and_a_reason():
    row = goal("demo", "int8_approves", 2, met=True, unmet_because="2 seeds only")
    assert row["met"] is None
    assert row["reason"] == "2 seeds only"
    assert row["goal"] == GOALS["demo"]["int8_approves"]


def test_an_unknown_benchmark_is_named_with_those_there_are():
    with pytest.raises(UsageError, match="generate"):
        run_benchmark("generete", quick=True)


def test_memory_is_measured_over_the_whole_process_tree():
    child = "import time; held = bytearray(40_000_000); time.sleep(1.2)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    found = measure([sys.executable, "-c", code], interval=0.1)
    assert found.exit == 0
    assert found.peak_rss > 40_000_000
    assert 40_000_000 < found.peak_pss <= found.peak_rss


def test_the_list_of_benchmarks_is_shown():
    shown = subprocess.run(
        [sys.executable, "-m", "qualgate", "bench", "--list"], capture_output=True, text=True, check=True
    )
    begun = [line for line in shown.stdout.splitlines() if not line.startswith(" ")]  # the others go on with one
    assert [line.split()[0] for line in begun] == list(BENCHMARKS)


def test_each_part_is_told_on_stderr_alone(capsys):
    assert list(told("scoring", ("bfcl", "suite"))) == ["bfcl", "suite"]
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "scoring: 0 of 2 done, 0 s; now bfcl", "scoring: 1 of 2 done, 0 s; now suite", "scoring: 2 of 2 done, 0 s"
    ]  # fmt: skip
