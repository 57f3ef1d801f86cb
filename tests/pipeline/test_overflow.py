"""A model that float16 cannot serve, end to end: answers that are equal in float32 approve nothing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.engine.test_overflow import scaled
from tests.gated_model import make_workspace

SAME = "variants:\n  same: {model: ./model, dtype: %s}\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("overflow")
    make_workspace(folder, cases=60, tokens=16)
    scaled(folder / "model", 2.0**15)
    return folder


def ran(folder: Path, made: Path, dtype: str, arithmetic: str = ""):
    shutil.copytree(made, folder, dirs_exist_ok=True)
    text = (folder / "gate.yaml").read_text().replace("dtype: float32}\nvariants", f"dtype: {dtype}}}\nvariants")
    start, end = text.index("variants:"), text.index("evalsets:")
    (folder / "gate.yaml").write_text(arithmetic + text[:start] + SAME % dtype + text[end:])
    return qualgate("run", "gate.yaml", "--json", cwd=folder)


def test_activations_beyond_the_declared_dtype_never_approve(tmp_path, made):
    done = ran(tmp_path, made, "float16")
    assert done.returncode == Exit.UNDECIDED, done.stderr
    report = json.loads(done.stdout)
    (verdict,) = report["verdicts"]
    assert min(sum(count for _, _, count in arm["footprint"]["overflow"]) for arm in report["arms"]) > 0
    for arm, reason in zip(("baseline", "same"), verdict["reasons"], strict=False):
        assert reason.startswith(f"{arm}: ")
        assert "beyond float16's largest number, 65504 (first" in reason
        assert "model.layers.0." in reason
        assert "Declare `dtype: bfloat16` if that is what is served" in reason


def test_a_served_run_stops_where_the_dtype_does_not_hold_an_activation(tmp_path, made):
    done = ran(tmp_path, made, "float16", "arithmetic: served\n")
    assert done.returncode == Exit.INFRASTRUCTURE, done.stderr
    assert "float16, in which a server would store it, does not hold model.layers.0." in done.stderr + done.stdout


@pytest.mark.proof
@pytest.mark.parametrize("arithmetic", ["", "arithmetic: served\n"])
def test_a_dtype_that_holds_every_activation_approves(tmp_path, made, arithmetic):
    done = ran(tmp_path, made, "bfloat16", arithmetic)
    assert done.returncode == Exit.APPROVE, done.stderr
    arms = json.loads(done.stdout)["arms"]
    assert [arm["footprint"]["overflow"] for arm in arms] == [[], []]
    if arithmetic:
        assert [arm["weights"] for arm in arms] == ["bfloat16, served"] * 2
        shown = qualgate("report", "gate.yaml", "--format", "markdown", cwd=tmp_path)
        assert "bfloat16, served" in shown.stdout, shown.stderr
