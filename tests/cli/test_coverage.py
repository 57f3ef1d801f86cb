"""`qualgate evalset coverage`, from the outside."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.errors import UsageError
from tests.tiny_models import save_tiny_model
from tests.tiny_sets import CALIBRATION, write_set


@pytest.fixture
def command(tmp_path):
    model = save_tiny_model(tmp_path / "model")
    calibration = write_set(tmp_path, "learned", ["A first text.", "A second one."], CALIBRATION)

    def run(texts: list[str], *options: str):
        exam = write_set(tmp_path, "exam", texts)
        return CliRunner().invoke(app, ["evalset", "coverage", calibration, exam, "--model", str(model), *options])

    return run


def test_coverage_is_shown_and_a_missed_bound_fails_nothing(command):
    done = command(["Something else.", "And more!"])
    assert done.exit_code == 0
    assert "leakage            0 runs of 13 words and 0 whole cases shared" in done.output
    assert "LOW  range" in done.output
    found = json.loads(command(["Something else."], "--json", "--tokens", "1").output)
    assert (found["calibration"]["cases"], found["calibration"]["activation_cases"]) == (2, 2)
    assert found["traffic"]["activation_tokens"] == found["traffic"]["tokens"]


def test_an_evaluation_case_in_the_calibration_set_ends_in_a_usage_error(command):
    done = command(["Something else.", "A second one."])
    assert isinstance(done.exception, UsageError)
    assert "exam/exam-1" in str(done.exception)
    assert "judged on its calibration data" in str(done.exception)
