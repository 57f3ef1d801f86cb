"""No variant is planned that learned from the cases it is judged on."""

from __future__ import annotations

from pathlib import Path

import pytest

from qualgate import evalsets
from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.evalsets.calibration_sets import check_leaks, with_calibration
from qualgate.pipeline.plan import make_plan
from qualgate.quant.recipes import parse_recipe
from tests.tiny_models import save_tiny_model
from tests.tiny_sets import CALIBRATION, write_set

GATE = """\
version: 1
baseline: {model: ./model}
variants:
  learned: {quantize: {method: gptq, group_size: 32, calibration: ./learned.yaml}}
evalsets: [./exam.yaml]
gate:
  rules:
    - {metric: exact_match, max_drop: 0.05}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_set(tmp_path, "learned", ["A first text.", "A second one."], CALIBRATION)
    write_set(tmp_path, "exam", ["Something else."])
    return tmp_path


def test_a_plan_whose_calibration_holds_an_evaluation_case_is_refused(folder):
    save_tiny_model(folder / "model")
    (folder / "gate.yaml").write_text(GATE)
    assert len(make_plan(load_gate_file(folder / "gate.yaml")).arms) == 2
    write_set(folder, "exam", ["Something else.", "a SECOND one"])
    with pytest.raises(UsageError, match=r"1 evaluation case .* such as exam/exam-1"):
        make_plan(load_gate_file(folder / "gate.yaml"))


def test_a_direct_cast_has_nothing_to_leak(folder):
    exam = evalsets.load("./exam.yaml", folder)
    check_leaks(parse_recipe("mxfp4"), [exam])
    recipe = parse_recipe({"method": "gptq", "group_size": 32, "calibration": "./learned.yaml"})
    check_leaks(with_calibration(recipe, folder), [exam])


def test_the_shipped_calibration_set_shares_nothing_with_the_shipped_evalsets(tmp_path):
    recipe = with_calibration(parse_recipe({"method": "gptq", "calibration": "calibration"}), tmp_path)
    check_leaks(recipe, [evalsets.load(name, tmp_path) for name in evalsets.shipped()])
