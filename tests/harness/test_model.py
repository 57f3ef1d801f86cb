"""Our engine behind lm-eval's tasks says what lm-eval's own `hf` model says of the same weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qualgate.errors import UsageError
from qualgate.intake.harnesses.log import Choice
from qualgate.intake.harnesses.recognise import read_log
from qualgate.records import Sampling
from tests.engine.test_own_cache import COMPRESSED, scaled
from tests.harness.lm_eval_tasks import TASKS, write_tasks
from tests.tiny_models import save_tiny_model

pytest.importorskip("lm_eval")

from qualgate.harness.generation import generation_settings
from qualgate.harness.model import QualgateLM, _stated_dtype

ROOT = Path(__file__).resolve().parents[2]
STATED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]


@pytest.fixture(scope="module")
def ours(evaluated):
    return evaluated(QualgateLM(dtype="float32"))


def test_texts_likelihoods_and_metrics_are_those_of_lm_evals_own_model(ours, theirs):
    mine, his = ours["samples"], theirs["samples"]
    for task in ("sums", "line"):
        assert [row["resps"] for row in mine[task]] == [row["resps"] for row in his[task]]
    assert all("\n" not in row["resps"][0][0] for row in mine["line"]), "ended at the line break, which is cut off"
    assert any("\n" in row["resps"][0][0] for row in mine["sums"])
    for task in ("choice", "greedy"):
        for row, other in zip(mine[task], his[task], strict=True):
            for ((one, greedily),), ((likelihood, says),) in zip(row["resps"], other["resps"], strict=True):
                assert one == pytest.approx(likelihood, abs=1e-4)
                assert greedily == says
    assert any(says for row in his["greedy"] for _, says in [row["resps"][0][0]])
    for row, other in zip(mine["text"], his["text"], strict=True):
        assert row["resps"][0][0] == pytest.approx(other["resps"][0][0], abs=1e-3, rel=1e-6)
    for task in TASKS:
        numbers = {key: value for key, value in theirs["results"][task].items() if isinstance(value, float)}
        assert numbers
        assert {key: ours["results"][task][key] for key in numbers} == pytest.approx(numbers, rel=1e-5)
    assert ours["results"]["sums"]["exact_match,strict-match"] > 0.5, "else equal metrics would say little"


def test_results_say_how_keys_and_values_were_held(tmp_path):
    plain = save_tiny_model(tmp_path / "model")
    model = scaled(plain, tmp_path / "fp8", declared=COMPRESSED)
    assert QualgateLM(pretrained=str(plain)).get_model_info()["qualgate_kv_cache"] == "float32"
    assert QualgateLM(pretrained=str(model)).get_model_info()["qualgate_kv_cache"] == "fp8, scales of the checkpoint"


def test_the_entry_points_that_pyproject_states_make_the_model_known():
    from lm_eval.api.registry import model_registry

    for group, names in STATED.items():
        for name, value in names.items():
            EntryPoint(name, value, group).load()()
    assert "qualgate" in model_registry


@pytest.mark.proof
def test_the_plain_command_finds_the_model(tmp_path):
    """`lm_eval --model qualgate` where qualgate is installed: its entry points as pyproject states them."""
    installed = tmp_path / "site" / "qualgate_stated-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: qualgate-stated\nVersion: 0\n")
    (installed / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in STATED.items())
    )
    tasks = write_tasks(tmp_path / "tasks", n=3)
    paths = [str(ROOT), str(ROOT / "kernels"), str(installed.parent), os.environ.get("PYTHONPATH", "")]
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment = {**os.environ, **offline, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "qualgate", "--model_args",
               "pretrained=reference,quantize=int4", "--tasks", "sums", "choice", "--include_path", str(tasks),
               "--log_samples", "--output_path", str(tmp_path / "out")]  # fmt: skip
    done = subprocess.run(command, cwd=tasks, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    (results,) = (tmp_path / "out").rglob("results_*.json")
    said = json.loads(results.read_text())
    assert said["config"]["model_dtype"].startswith("int4")
    assert said["results"]["sums"]["exact_match,strict-match"] > 0
    (log,) = (tmp_path / "out").rglob("samples_sums_*.jsonl")
    read = read_log(log, choice=Choice(filter="strict-match"))
    assert (read.task, len(read.scores.rows)) == ("sums", 3)
    assert all(row.case_hash for row in read.scores.rows)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ('{"dtype": "float16"}', "float16"),
        ('{"torch_dtype": "bfloat16"}', "bfloat16"),
        ("{}", "float32"),
        ("[", "float32"),
        ('{"dtype": "float8_e4m3fn"}', ""),
    ],
)
def test_weights_are_of_the_type_that_the_folder_states_if_the_engine_holds_it(tmp_path, config, dtype):
    (tmp_path / "config.json").write_text(config)
    with nullcontext() if dtype else pytest.raises(UsageError, match="float8_e4m3fn"):
        assert _stated_dtype(tmp_path) == dtype


def test_a_task_that_samples_as_we_cannot_is_refused():
    for settings, said in (
        ({"do_sample": True}, "that the task states"),
        ({"do_sample": True, "temperature": 1000}, "from 0.01 to 100"),
        ({"temperature": 0.7, "top_p": 0}, "samples with top_p: expected a number over 0"),
        ({"temperature": 0.7, "top_p": "much"}, "`top_p` and `min_p` of the task must be numbers"),
        ({"temperature": 0.7, "min_p": 1.0}, "samples with min_p"),
        ({"do_sample": True, "temperature": 0.7, "top_k": 4.5}, "samples with top_k"),
        ({"do_sample": True, "temperature": 0.7, "top_k": -2}, "samples with top_k"),
        ({"do_sample": True, "temperature": 0.7, "typical_p": 0.5}, "typical_p"),
        ({"do_sample": True, "temperature": 0.7, "num_beams": 4}, "num_beams"),
        ({"num_beams": 4}, "num_beams"),
        ({"max_gen_toks": 0}, "at least 1"),
        ({"do_sample": True, "temperature": None}, "that the task states"),
        ({"temperature": "warm"}, "must be numbers"),
        ({"temperature": [0.7]}, "must be numbers"),
        ({"max_gen_toks": float("inf")}, "must be numbers"),
    ):
        with pytest.raises(UsageError, match=said):
            generation_settings(settings)


def test_how_a_task_samples_is_taken_over_and_without_effect_where_it_does_not():
    assert generation_settings({"until": "\n", "max_new_tokens": 7}) == (("\n",), 7, Sampling())
    for settings in (
        {"temperature": 0.7},
        {"do_sample": True, "temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0},
    ):
        assert generation_settings({**settings, "until": ["\n"]}) == (("\n",), 256, Sampling(temperature=0.7))
    cuts: dict[str, Any] = {"top_k": 40, "top_p": 0.9, "min_p": 0.1}
    for settings in ({"temperature": 0.7, **cuts}, {"do_sample": True, "temperature": 0.7, **cuts}):
        assert generation_settings(settings).sampling == Sampling(temperature=0.7, **cuts)
    assert generation_settings({"temperature": 0.7, "top_k": -1}).sampling == Sampling(temperature=0.7)
    for greedy in ({"do_sample": False, "temperature": 0.7}, {"do_sample": False}, {}, {"temperature": 0.0}):
        assert generation_settings({**greedy, **cuts}).sampling == Sampling()
    empty = dict.fromkeys(("temperature", "do_sample", "top_p", "top_k", "until", "max_gen_toks", "num_beams"))
    assert generation_settings(empty) == ((), 256, Sampling())


def test_our_engine_draws_for_lm_eval_the_same_in_any_batch(tmp_path):
    def said(seed: int, rows: int, order: int = 1, **cuts) -> list[str]:
        model = QualgateLM(dtype="float32", batch_size=rows, seed=seed, cache_dir=str(tmp_path))
        how = {"until": [], "max_gen_toks": 8, "do_sample": True, "temperature": 1.5, **cuts}
        sampled = [(f"Question: {number} + 4 =", how) for number in range(4)]
        asked = [*sampled, *sampled, ("Question: 1 + 4 =", {"until": [], "max_gen_toks": 8})]
        requests = [SimpleNamespace(args=args) for args in asked][::order]
        return model.generate_until(requests)[::order]

    first = said(1, 64)
    assert first == said(1, 3)
    assert sum(one != other for one, other in zip(first[:4], first[4:8], strict=True)) > 1, "asked twice, drawn twice"
    other = said(2, 64)
    assert other[:8] != first[:8]
    assert other[8] == first[8], "greedy has no seed"
    assert said(1, 3, top_k=1)[1] == first[8], "of one token left the draw is that one"
