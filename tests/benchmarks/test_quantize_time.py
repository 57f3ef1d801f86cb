"""Benchmark `quantize-time`: samples of one length, and rows that say why they were not measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from qualgate import refmodel
from qualgate.engine.calibration import answered
from qualgate.records import Case
from tests.benchmarks import quantize_time


def test_samples_fill_their_tokens_and_differ():
    bodies = quantize_time.samples(refmodel.PATH, 3)
    lengths = [len(prompt) for prompt, _ in answered(refmodel.PATH, [Case(evalset="s", body=body) for body in bodies])]
    assert all(quantize_time.TOKENS - 8 <= length <= quantize_time.TOKENS for length in lengths)
    assert len({body["messages"][0]["content"] for body in bodies}) == 3


@pytest.mark.parametrize("error", ["", "The environment of backend llmcompressor does not exist."])
def test_rows_are_ratios_of_processor_seconds_or_the_reason_for_none(monkeypatch, error):
    def measured(_: Path, *words: str) -> dict[str, Any]:
        seconds = 100.0 if "--backend" in words else 120.0 if words[0] == "quantize" else 25.0
        return {"processor_seconds": seconds, "seconds": 2 * seconds, "error": error if "--backend" in words else ""}

    monkeypatch.setattr(quantize_time, "_measured", measured)
    monkeypatch.setattr(quantize_time, "samples", lambda model, count: [{"id": "a"}])
    rows = quantize_time.run(False)["goals"]
    assert [row["met"] for row in rows] == ([None, None] if error else [True, False])
    assert [row["measured"] for row in rows] == ([None, None] if error else [1.2, 0.25])
