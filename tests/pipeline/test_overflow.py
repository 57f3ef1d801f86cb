"""A model that float16 cannot serve, end to end: answers that are equal in float32 approve nothing."""

from __future__ import annotations

import json

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.engine.test_overflow import scaled
from tests.gated_model import make_workspace

SAME = "variants:\n  same: {model: ./model, dtype: %s}\n"


@pytest.mark.parametrize(("dtype", "exit"), [("float16", Exit.UNDECIDED), ("bfloat16", Exit.APPROVE)])
def test_activations_beyond_the_declared_dtype_never_approve(tmp_path, dtype, exit):
    gate_file = make_workspace(tmp_path, cases=60, tokens=4)
    scaled(tmp_path / "model", 2.0**15)
    text = gate_file.read_text().replace("dtype: float32}\nvariants", f"dtype: {dtype}}}\nvariants")
    start, end = text.index("variants:"), text.index("evalsets:")
    gate_file.write_text(text[:start] + SAME % dtype + text[end:])
    done = qualgate("run", "gate.yaml", "--json", cwd=tmp_path)
    assert done.returncode == exit, done.stderr
    report = json.loads(done.stdout)
    (verdict,) = report["verdicts"]
    counted = [sum(count for _, _, count in arm["footprint"]["overflow"]) for arm in report["arms"]]
    if exit == Exit.APPROVE:
        assert counted == [0, 0]
        return
    assert min(counted) > 0
    for arm, reason in zip(("baseline", "same"), verdict["reasons"], strict=False):
        assert reason.startswith(f"{arm}: ")
        assert "beyond float16's largest number, 65504 (first" in reason
        assert "model.layers.0." in reason
        assert "Declare `dtype: bfloat16` if that is what is served" in reason


@pytest.mark.parametrize(("dtype", "exit"), [("float16", Exit.INFRASTRUCTURE), ("bfloat16", Exit.APPROVE)])
def test_a_served_run_stops_where_the_dtype_does_not_hold_an_activation_and_else_approves(tmp_path, dtype, exit):
    gate_file = make_workspace(tmp_path, cases=60, tokens=16)
    scaled(tmp_path / "model", 2.0**15)
    text = gate_file.read_text().replace("dtype: float32}\nvariants", f"dtype: {dtype}}}\nvariants")
    start, end = text.index("variants:"), text.index("evalsets:")
    gate_file.write_text("arithmetic: served\n" + text[:start] + SAME % dtype + text[end:])
    done = qualgate("run", "gate.yaml", "--json", cwd=tmp_path)
    assert done.returncode == exit, done.stderr
    if exit == Exit.APPROVE:
        assert [arm["weights"] for arm in json.loads(done.stdout)["arms"]] == ["bfloat16, served"] * 2
        shown = qualgate("report", "gate.yaml", "--format", "markdown", cwd=tmp_path)
        assert "bfloat16, served" in shown.stdout, shown.stderr
    else:
        assert "float16, in which a server would store it, does not hold model.layers.0." in done.stderr + done.stdout
