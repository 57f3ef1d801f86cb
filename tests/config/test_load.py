"""How a gate file says that served arms are loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.records import Load
from tests.config.gate_files import SMALL


def read(folder: Path, load: str = "") -> Load:
    path = folder / "gate.yaml"
    path.write_text(SMALL + (f"load: {load}\n" if load else ""))
    return load_gate_file(path).load


def test_a_closed_loop_of_three_levels_is_what_nothing_said_means(tmp_path):
    assert read(tmp_path) == Load() == Load(concurrency=(1, 4, 16))
    assert read(tmp_path, "{seconds: 60}") == Load(seconds=60.0)


def test_an_open_loop_is_no_closed_one_unless_both_are_said(tmp_path):
    assert read(tmp_path, "{rate: [2, 0.5], burstiness: 0.25}") == Load(
        concurrency=(), rate=(2.0, 0.5), burstiness=0.25
    )
    assert read(tmp_path, "{rate: [2], concurrency: [8]}") == Load(concurrency=(8,), rate=(2.0,))


def test_a_trace_stands_beside_the_gate_file(tmp_path):
    (tmp_path / "t.jsonl").write_text("")
    found = read(tmp_path, "{trace: t.jsonl, speed: 2, warmup: 40, retries: 1, cancel: 0.1, rounds: 1}")
    assert found == Load(
        concurrency=(), trace=str(tmp_path / "t.jsonl"), speed=2.0, warmup=40.0, retries=1, cancel=0.1, rounds=1
    )


@pytest.mark.parametrize(
    ("load", "told"),
    [
        ("{concurency: [1]}", "did you mean 'concurrency'"),
        ("{concurrency: 4}", "`load.concurrency` should be a list"),
        ("{concurrency: []}", "`load.concurrency`"),
        ("{concurrency: [0]}", "from 1 to 4,096; found 0"),
        ("{concurrency: [1, 1]}", "names a level twice"),
        ("{concurrency: [1.5]}", "concurrency"),
        ("{rate: [.inf]}", "rate"),
        ("{rate: [0]}", "from 0.001 to 100,000; found 0"),
        ("{burstiness: 0.5}", "add for example `rate"),
        ("{speed: 2}", "add `trace: FILE`"),
        ("{trace: ./not-there.jsonl}", "no file"),
        ("{trace: https://example.org/t.jsonl}", "not in this version"),
        ("{seconds: 10}", "counts nothing: of 10 seconds, 5 are warm-up and 5 cool-down"),
        ("{seconds: -1}", "seconds"),
        ("{rounds: 0}", "`load.rounds` should be from 1 to 1000"),
        ("{cancel: 1}", "`load.cancel` should be from 0 to 0.9"),
        ("{cancel: 10}", "10 % is 0.1"),
        ("{retries: 9}", "`load.retries` should be from 0 to 5"),
        ("null", "load"),
        ("[1, 4]", "such as `{concurrency: [1, 4, 16]}`"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_line(tmp_path, load, told):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, load)
    assert told in str(refused.value)
    assert "gate.yaml:" in str(refused.value)


def test_a_traces_length_is_its_own(tmp_path):
    (tmp_path / "t.jsonl").write_text("")
    with pytest.raises(UsageError, match="a trace lasts as long as it says"):
        read(tmp_path, "{trace: t.jsonl, seconds: 60}")
