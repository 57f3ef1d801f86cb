"""What a plan refuses and lays out where a run computes on GPUs; none is needed here."""

from __future__ import annotations

import pytest

from qualgate.errors import NotInThisVersion
from tests.gated_model import write_evalset
from tests.pipeline.test_check_drafts import GATE_FILE, planned
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    folder = tmp_path_factory.mktemp("room")
    save_tiny_model(folder / "model", dtype="float32")
    save_tiny_model(folder / "small", layers=1, dtype="float32")
    write_evalset(folder, [{"id": "a", "prompt": "x", "max_new_tokens": 4, "answer": "y"}])
    return folder


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch):
    for module in ("arms", "check_drafts", "checks", "memory", "run_key"):
        monkeypatch.setattr(f"qualgate.pipeline.{module}.choose_device", lambda devices: "cuda")


@pytest.mark.parametrize(("head", "name"), [("own", "MTP layer"), ("./small", "draft head")])
def test_what_reads_its_target_s_states_drafts_on_no_gpu(room, head, name):
    with pytest.raises(NotInThisVersion, match=rf"drafted drafts by {name}, which runs on a CPU alone.*`workers: "):
        planned(room, f"{{draft: {{head: {head}}}, tokens: 4}}")


@pytest.mark.parametrize("draft", ["{quantize: int8}", "{model: ./small, under: {draft: ngram}}"])
def test_models_and_texts_draft_on_a_gpu(room, draft):
    assert planned(room, f"{{draft: {draft}}}").identities["drafted"].speculation


def test_gpus_that_a_run_names_are_looked_at_before_anything_is_made(room, monkeypatch):
    asked = []
    monkeypatch.setattr("qualgate.pipeline.checks.check_alike", asked.append)
    planned(room, "{draft: ngram}", GATE_FILE.replace("count: 1, devices: cpu", "devices: [1, 0]"))
    assert asked == [((1,), (0,))]
