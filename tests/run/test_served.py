"""Arms that are served, end to end: judged as the same weights are that are generated here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import rows
from tests.served.scripted import Reply, as_json, scripted, text_piece
from tests.server.serving import serving

ANSWERS = (
    "SELECT evalset, case_id, text, finish_reason, token_ids, prompt_tokens FROM units WHERE arm = '{}' ORDER BY 1, 2"
)
SCORES = (
    "SELECT case_id, metric, value, verdict, error_type, extracted, reason, scorer FROM units JOIN scores USING (unit_id) "
    "WHERE arm = '{}' ORDER BY 1, 2"
)
RULES = """\
evalsets: [./echo.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
workers: {count: 1}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The workspace's folder, with the model and another that is damaged."""
    folder = make_workspace(tmp_path_factory.mktemp("made")).parent
    shutil.copytree(folder / "model", folder / "damaged")
    weights = load_file(folder / "damaged" / "model.safetensors")
    torch.manual_seed(0)
    save_file({name: one + 0.3 * one.std() * torch.randn(one.shape) for name, one in weights.items() if one.dim() > 1}
              | {name: one for name, one in weights.items() if one.dim() == 1},
              folder / "damaged" / "model.safetensors", metadata={"format": "pt"})  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def addresses(made, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    with (
        serving(made / "model", "support", cache) as (one, _),
        serving(made / "damaged", "damaged", cache) as (other, _),
    ):
        yield one, other


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(workspace: Path, arms: str, store: str = "qualgate.db", rules: str = RULES, **environment: str):
    (workspace / "gate.yaml").write_text(f"version: 1\n{arms}{rules}store: sqlite:///{store}\n")
    return qualgate("run", "gate.yaml", "--json", cwd=workspace, **environment)


def stored(workspace: Path, query: str) -> list[tuple]:
    return rows(workspace, query)


def words(done) -> dict[str, str]:
    return {verdict["variant"]: verdict["word"] for verdict in json.loads(done.stdout)["verdicts"]}


HERE = "baseline: {model: ./model, dtype: float32}\nvariants: {damaged: {model: ./damaged, dtype: float32}}\n"


def test_the_verdict_and_every_answer_are_those_of_the_engine_in_process(workspace, addresses, made):
    one, other = addresses
    here = run(workspace, HERE)
    expected = {
        arm: [stored(workspace, query.format(arm)) for query in (ANSWERS, SCORES)] for arm in ("baseline", "damaged")
    }
    assert expected["baseline"] != expected["damaged"]
    (workspace / "qualgate.db").unlink()
    served = run(
        workspace,
        f"baseline: {{endpoint: '{one}', model: support, tokenizer: ./model}}\n"
        f"variants: {{damaged: {{endpoint: '{other}', model: damaged, tokenizer: ./model, concurrency: 5, stream: false}}}}\n",
    )
    assert served.returncode == here.returncode == Exit.BLOCK, served.stderr
    assert words(served) == words(here) == {"damaged": "block"}
    found = {
        arm: [stored(workspace, query.format(arm)) for query in (ANSWERS, SCORES)] for arm in ("baseline", "damaged")
    }
    assert found == expected
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)  # of the stored run: no server is asked
    assert words(again) == {"damaged": "block"}


def test_a_server_is_held_against_the_weights_here(workspace, addresses):
    one, _ = addresses
    done = run(
        workspace,
        "baseline: {model: ./model, dtype: float32}\n"
        f"variants: {{served: {{endpoint: '{one}', model: support, tokenizer: ./model}}}}\n",
    )
    assert done.returncode == Exit.APPROVE, done.stderr + done.stdout
    assert stored(workspace, ANSWERS.format("baseline")) == stored(workspace, ANSWERS.format("served"))
