"""`qualgate compare --tokens` by itself, on two of our own servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import Exit
from qualgate.quant.recipes import parse_recipe
from qualgate.refmodel import PATH
from tests.command_line import qualgate
from tests.served.server.serving import serving


@pytest.mark.proof
def test_a_quantized_server_is_called_different_and_its_size_is_stated(tmp_path: Path):
    int4 = parse_recipe("int4")
    with serving(PATH, "m", tmp_path / "a") as (a, _), serving(PATH, "m", tmp_path / "b", quantize=int4) as (b, _):
        done = qualgate("compare", a, b, "--tokens", "2500", cwd=tmp_path)
    assert done.returncode == Exit.UNDECIDED, done.stderr
    assert "A and B: different" in done.stdout
    assert "4-bit weights" in done.stdout
    made = json.loads((tmp_path / "qualgate-compare" / "statement.json").read_text())
    assert made["tests"]["nats"] > 0.1
    assert max(made["tests"]["noise"]) < 1e-6
    spent = [made["asked"]["spent"][name] for name in "AB"]
    assert sum(one["prompt"] + one["answer"] for one in spent) <= 2500
    assert all(one["estimated"] == 0 for one in spent)
