from __future__ import annotations

import subprocess
import sys

import pytest

from qualgate.bench import _run_of as run_of_speed
from qualgate.bench import benchmarks, checkout, run_benchmark
from qualgate.bench.goals import COMMANDS, SPEED
from qualgate.bench.memory import measure
from qualgate.errors import UsageError
from tests.verification import PROOFS, run_of


def test_every_benchmark_has_a_module():
    assert all(one.name == name and all(one.goals.values()) for name, one in benchmarks().items())
    modules = [run.__module__ for run in (*map(run_of_speed, SPEED), *map(run_of, PROOFS))]
    assert [module.rpartition(".")[2].replace("_", "-") for module in modules] == [*SPEED, *PROOFS]


def test_what_a_wheel_says_of_the_proofs_is_what_a_checkout_holds(monkeypatch, tmp_path):
    assert set(checkout.PROOFS) == set(PROOFS)
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    assert benchmarks() == SPEED
    with pytest.raises(UsageError, match=r"decisions is a proof.*checkout.*qualgate bench decisions"):
        run_benchmark("decisions", quick=True)


def test_a_result_without_a_row_of_its_table_is_refused():
    rows = [COMMANDS.row(id, 0.1, met=True) for id in COMMANDS.goals]
    assert COMMANDS.result(rounds=[], rows=rows)["goals"] == rows
    with pytest.raises(AssertionError, match="dashboard_first_page"):
        COMMANDS.result(rounds=[], rows=rows[:-1])


def test_an_unknown_benchmark_is_named_with_those_there_are():
    with pytest.raises(UsageError, match="decode"):
        run_benchmark("decoed", quick=True)


def test_memory_is_measured_over_the_whole_process_tree():
    child = "import time; held = bytearray(40_000_000); time.sleep(1.2)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    found = measure([sys.executable, "-c", code], interval=0.1)
    assert found.exit == 0
    assert found.peak_rss > 40_000_000
    assert 40_000_000 < found.peak_pss <= found.peak_rss


def test_the_list_of_benchmarks_is_shown_beside_another_package_called_tests(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "__init__.py").touch()
    command = [sys.executable, "-m", "qualgate", "bench", "--list"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    begun = [line for line in shown.stdout.splitlines() if not line.startswith(" ")]  # the others go on with one
    assert [line.split()[0] for line in begun] == list(benchmarks())
