"""`reasoning: auto` names the way of the baseline's chat template, in every case and before anything is generated."""

from __future__ import annotations

import re

import pytest

from qualgate import evalsets
from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.pipeline.foretell import foretell
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.reasoning_ways import with_ways
from qualgate.pipeline.score_files import choose_scorer, score_files
from qualgate.pipeline.score_sample import of_today
from qualgate.quant.model_folder import read_tokenizer_folder
from qualgate.scoring import score, scorer_versions
from tests.gated_model import GATE_FILE
from tests.pipeline.outputs import write
from tests.tiny_models import save_byte_tokenizer, save_tiny_model

THINKS = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}"
ASKED = {"messages": [{"role": "user", "content": "Q"}], "max_new_tokens": 8, "answer": "A"}
CASES = [{**ASKED, "id": "chat"}, {**ASKED, "id": "own", "messages": [{"role": "user", "content": "R"}],
         "reasoning": "seed"}, {"id": "raw", "prompt": "P", "max_new_tokens": 8, "answer": "A"}]  # fmt: skip


def a_set(folder, way: str = "auto") -> evalsets.Evalset:
    write(folder / "echo.jsonl", CASES)
    (folder / "echo.yaml").write_text(f"name: echo\nversion: '1'\nmetrics: [exact_match]\nreasoning: {way}\n")
    return evalsets.load("./echo.yaml", folder)


@pytest.mark.parametrize(
    ("template", "ways"),
    [(THINKS, ["think_opened", "seed", "think"]), ("{{ messages[0].content }}", ["none", "seed", "none"])],
)
def test_a_template_tells_of_every_case_that_says_auto(tmp_path, template, ways):
    (tmp_path / "model").mkdir()
    save_byte_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(template)
    told: list[str] = []
    asked = a_set(tmp_path)
    [found] = with_ways([asked], read_tokenizer_folder(tmp_path / "model"), told.append)
    assert [case.body["reasoning"] for case in found.cases] == ways
    assert f"echo: reasoning is {ways[0]}: its template" in told[0]
    assert found.content == asked.content, "the set is the one of the file"


@pytest.mark.parametrize("marker", ["<thought>", "\u25c1think\u25b7"])
def test_a_template_whose_thoughts_no_way_reads_stops_the_plan(tmp_path, marker):
    (tmp_path / "model").mkdir()
    save_byte_tokenizer(tmp_path / "model")
    (tmp_path / "model" / "chat_template.jinja").write_text(f"{marker}{{{{ messages[0].content }}}}")
    folder = read_tokenizer_folder(tmp_path / "model")
    with pytest.raises(UsageError, match=f"its template writes {re.escape(marker)}.*Say `reasoning: none`"):
        with_ways([a_set(tmp_path)], folder, lambda line: None)
    assert with_ways([a_set(tmp_path, "none")], folder, lambda line: None)


def test_a_server_that_renders_prompts_has_its_thoughts_written_as_think(tmp_path):
    [found] = with_ways([a_set(tmp_path)], None, lambda line: None)
    assert [case.body["reasoning"] for case in found.cases] == ["think", "seed", "think"]


def test_a_plan_holds_the_ways_and_another_way_is_another_run(tmp_path):
    save_tiny_model(tmp_path / "model", dtype="float32")
    (tmp_path / "model" / "chat_template.jinja").write_text(THINKS)
    (tmp_path / "gate.yaml").write_text(GATE_FILE)
    keys = set()
    for way in ("auto", "none", "think"):
        a_set(tmp_path, way)
        plan = make_plan(load_gate_file(tmp_path / "gate.yaml"))
        keys.add(plan.key)
        first = plan.evalsets[0].cases[0]
        assert first.body["reasoning"] == {"auto": "think_opened"}.get(way, way)
        assert {p.case_hash for job in plan.jobs for p in job.prompts if p.key.case_id == "chat"} == {first.hash}
    assert len(keys) == 3


def test_what_auto_is_here_is_told_by_the_command_that_foretells_a_run(tmp_path):
    save_tiny_model(tmp_path / "model", dtype="float32")
    (tmp_path / "gate.yaml").write_text(GATE_FILE)
    a_set(tmp_path)
    told: list[str] = []
    foretell(load_gate_file(tmp_path / "gate.yaml"), warn=told.append)
    assert "echo: reasoning is none: its template writes no marker of a thought" in told


def test_a_score_behind_a_thought_is_as_new_as_its_scorer(tmp_path):
    asked = a_set(tmp_path, "think")
    [found] = score(asked.cases[0], asked, "<think>B</think>A", "eos")
    assert found.verdict is True
    assert of_today("exact_match", found.scorer, scorer_versions()) == found.scorer
    assert of_today("exact_match", found.scorer, {"exact_match": "exact_match/99"}) != found.scorer


def test_files_are_scored_by_the_way_that_the_yaml_names(tmp_path):
    a_set(tmp_path, "think")
    write(tmp_path / "out.jsonl", [{"id": c["id"], "text": "<think>B</think>A"} for c in CASES])
    found = score_files(tmp_path / "echo.jsonl", tmp_path / "out.jsonl", choose_scorer("exact_match"))
    assert [row.score.verdict for row in found.rows] == [True, False, True]
    assert found.rows[0].case.hash == evalsets.load("./echo.yaml", tmp_path).cases[0].hash


def test_files_without_a_template_are_refused(tmp_path):
    a_set(tmp_path)
    write(tmp_path / "out.jsonl", [{"id": c["id"], "text": "A"} for c in CASES])
    with pytest.raises(UsageError, match="`reasoning: auto` is told by a chat template, and there is none here"):
        score_files(tmp_path / "echo.jsonl", tmp_path / "out.jsonl", choose_scorer("exact_match"))
