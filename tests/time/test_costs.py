"""Test the costs of a recorded run, what a test alone reaches, and what a later run no longer reaches."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.time.__main__ import lost
from tests.time.costs import Recorded, Test

BRANCHES = [("a.py", -1, 1), ("a.py", 1, 2), ("a.py", 1, 3), ("b.py", -1, 5)]


def recorded(**tests: tuple[float, int]) -> Recorded:
    rows = [
        Test(f"tests/room/test_x.py::{name}", *(seconds, "passed", taken)) for name, (seconds, taken) in tests.items()
    ]
    return Recorded(sorted(rows, key=lambda test: -test.seconds), 1.0, BRANCHES)


def test_a_test_alone_holds_what_no_cheaper_one_reaches():
    run = recorded(dear=(3.0, 0b1111), middle=(2.0, 0b0111), cheap=(1.0, 0b0011))
    alone = run.held_alone(2)
    assert {name.split("::")[1]: (own.lines, own.branches) for name, own in alone.items()} == {
        "middle": ({("a.py", 3)}, [("a.py", 1, 3)]),
        "dear": ({("b.py", 5)}, [("b.py", -1, 5)]),
    }


def test_tests_that_reach_a_line_come_cheapest_first():
    run = recorded(dear=(3.0, 0b0010), cheap=(1.0, 0b0001), other=(0.5, 0b1000))
    assert [test.name.split("::")[1] for test in run.reaching("a.py", 1, 1)] == ["cheap", "dear"]
    assert run.reaching("b.py", 6, 9) == []


def test_branches_are_lost_when_no_test_of_the_later_run_takes_them(capsys):
    before = recorded(one=(1.0, 0b0011), two=(1.0, 0b1000))
    assert lost(before, recorded(one=(1.0, 0b1001)), ("tests/room/",)) == 1
    assert capsys.readouterr().out == "a.py: 1: lines 2\n1 branches lost\n"
    assert lost(before, recorded(one=(1.0, 0b1011)), ("tests/room/",)) == 0


TRACED = """
import subprocess, sys

def test_here(): pass

def test_in_a_child():
    subprocess.run([sys.executable, "-c", "import qualgate.text.escaping"], check=True)
"""


@pytest.mark.proof
def test_a_run_is_recorded_with_the_branches_of_its_children(tmp_path):
    """With the command; the tests are files of their own."""
    (tmp_path / "test_some.py").write_text(TRACED)
    words = ["record", str(tmp_path / "run"), "--traced", "-n", "0", str(tmp_path / "test_some.py")]
    subprocess.run([sys.executable, "-m", "tests.time", *words], check=True, capture_output=True)
    output = subprocess.run(
        [sys.executable, "-m", "tests.time", "show", str(tmp_path / "run")], check=True, capture_output=True, text=True
    ).stdout
    assert output.startswith("2 tests, ")
    rows = {line.split("::")[1]: line.split()[1:4] for line in output.splitlines() if "::" in line}
    assert int(rows["test_in_a_child"][0]) > 0
    assert rows["test_here"] == ["0", "0", "0"]
