"""Coverage of evalsets by a calibration set in a whole, tiny model."""

from __future__ import annotations

import pytest

from qualgate.engine import choice
from qualgate.engine.calibration import answered
from qualgate.engine.coverage import coverage, readings
from qualgate.records import CalibrationSet, Case, Evalset
from tests.engine.tiny_architectures import tiny
from tests.tiny_models import END, START, save_byte_tokenizer

TOOL = {"type": "function", "function": {"name": "book", "parameters": {"type": "object"}}}


def case(name: str, text: str, answer: str = "", **more) -> Case:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    return Case(evalset="s", body={"id": name, "messages": messages, "answer": answer, "max_new_tokens": 4, **more})


def test_a_reading_is_prompt_and_answer_and_its_words_leave_the_system_message_out(model):
    [found] = readings(model, [case("a", "Two and two?", "Four.", task="sums", tags=["language:en"], tools=[TOOL])])
    [(prompt, answer)] = answered(model, [case("a", "Two and two?", "Four.", tools=[TOOL])])
    assert found.token_ids == (*prompt, *answer)
    assert found.words == ("two", "and", "two", "four")
    assert (found.id, found.task, found.language) == ("s/a", "sums", "en")
    assert found.tools[0].startswith("book:")
    other = {"type": "function", "function": {"name": "book", "parameters": {"type": "object", "required": ["n"]}}}
    assert readings(model, [case("a", "x", tools=[other])])[0].tools != found.tools


def test_no_engine_is_tried_for_texts_that_are_only_read(model, monkeypatch):
    monkeypatch.setattr(choice, "choose_engine", lambda _: pytest.fail("an engine was tried"))
    evalset = Evalset(name="e", version="2", sha256="1" * 64, metrics=(), cases=(case("t", "Another one!", "No."),))
    calibration = CalibrationSet(name="c", version="1", sha256="0" * 64, cases=(case("k", "One text.", "Yes."),))
    assert coverage(model, calibration, [evalset]).range is not None


def test_every_quantized_layer_is_measured_and_both_sides_are_named(model):
    calibration = CalibrationSet(name="c", version="1", sha256="0" * 64, cases=(case("k", "One text.", "Yes."),))
    evalset = Evalset(name="e", version="2", sha256="1" * 64, metrics=(), cases=(case("t", "Another one!", "No."),))
    found = coverage(model, calibration, [evalset]).as_json()
    assert len(found["sites"]) == 2 * 7
    assert found["calibration"]["name"] == "c"
    assert found["traffic"]["evalsets"] == [{"name": "e", "version": "2", "sha256": "1" * 64}]
    assert 0 < found["range"]["min"] < 1
    assert found["leakage"]["grams"] == 0
    same = coverage(
        model, calibration, [Evalset(name="e", version="2", sha256="1" * 64, metrics=(), cases=calibration.cases)]
    )
    assert (same.range, same.leakage.same, same.centroid_distance) == (1, 1, 0)


def test_a_model_whose_norms_have_no_weights_is_read_too(tmp_path):
    """Laid out for the kernels, it has no parameter left."""
    folder = tmp_path / "olmo"
    tiny("olmo", bos_token_id=START, eos_token_id=END).save_pretrained(folder)
    save_byte_tokenizer(folder)
    calibration = CalibrationSet(name="c", version="1", sha256="0" * 64, cases=(case("k", "One text.", "Yes."),))
    evalset = Evalset(name="e", version="2", sha256="1" * 64, metrics=(), cases=calibration.cases)
    assert coverage(folder, calibration, [evalset]).range == 1
