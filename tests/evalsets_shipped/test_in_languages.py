"""The shipped sets in other languages: as the generator writes them, in their language, right by their own scorers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import qualgate_evalsets
from qualgate.evalsets import sets
from qualgate.records import Evalset
from qualgate.scoring import score
from qualgate.scoring.language import KIN, scripts, surely
from qualgate_evalsets.languages import FAMILIES, LANGUAGES, TEMPLATES, language
from qualgate_evalsets.making.in_languages import CASES, write

FOLDER = Path(qualgate_evalsets.__file__).parent
SCRIPTS = {"es": "latin", "zh": "cjk", "ar": "arabic", "hi": "devanagari"}
EVERY = [(family, code) for family in FAMILIES for code in LANGUAGES]


def shipped(family: str, code: str) -> Evalset:
    found = sets.read(FOLDER / f"{family}_{code}.yaml")
    assert isinstance(found, Evalset)
    return found


@pytest.mark.parametrize(("family", "code"), EVERY)
def test_the_generator_writes_the_shipped_bytes_again(family, code, tmp_path):
    write(family, code, tmp_path)
    for name in (f"{family}_{code}.jsonl", f"{family}_{code}.yaml"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), (
            "run: python -m qualgate_evalsets.making.in_languages"
        )


@pytest.mark.parametrize(("family", "code"), EVERY)
def test_every_reference_is_right_and_another_cases_is_not(family, code):
    found = shipped(family, code)
    assert len(found.cases) == CASES >= 64
    assert sets.check(FOLDER / f"{family}_{code}.yaml") == ()
    differ = wrong = 0
    for case, other in zip(found.cases, (*found.cases[1:], found.cases[0]), strict=True):
        own = score(case, found, case.body["answer"], "eos")
        assert all(one.value == 1 for one in own), (case.id, own)
        if case.body["answer"] != other.body["answer"]:
            differ += 1
            wrong += score(case, found, other.body["answer"], "eos")[-1].value == 0
    assert wrong == differ > 0.8 * CASES


@pytest.mark.parametrize(("family", "code"), EVERY)
def test_a_question_is_asked_in_its_language(family, code):
    kin = {code}.union(*(family for family in KIN if code in family))
    asked = [case.body["messages"][0]["content"] for case in shipped(family, code).cases]
    plain = [re.sub(r"\{[^{}]*\}", "", text.replace("JSON", "")) for text in asked]
    assert surely("\n".join(plain)) in kin
    for text in plain:
        letters = scripts(re.sub(r"[A-Z]{3}|null|[A-Z](?=\d)", "", text))
        assert set(letters) == {SCRIPTS[code]}, text
        assert not re.search(r"[\[\]@/]", text), text


@pytest.mark.parametrize("code", LANGUAGES)
def test_a_note_says_what_is_asked_and_null_is_what_it_does_not_say(code):
    words, missing = language(code), 0
    for case in shipped("json_extract", code).cases:
        _, note = case.body["messages"][0]["content"].split("\n")
        record = json.loads(case.body["answer"])
        Draft202012Validator(case.body["schema"]).validate(record)
        missing += None in record.values()
        for value in record.values():
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, (str, int, float)) and not isinstance(part, bool):
                    assert (f"{part:.2f}" if isinstance(part, float) else str(part)) in note
        flags = [phrase for phrases in words.NOTES.values() for phrase in phrases[1:] if "/" in phrase]
        assert all(phrase.count("/") == 1 for phrase in flags)
    assert 10 < missing < 50


@pytest.mark.parametrize("code", LANGUAGES)
def test_calls_fit_an_offered_tool_and_are_said_in_the_request(code):
    found, shapes = shipped("tool_calls", code), set()
    for case in found.cases:
        request = case.body["messages"][0]["content"]
        offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in case.body["tools"]}
        for call in case.body["expected_calls"]:
            Draft202012Validator(offered[call["name"]]).validate(call["arguments"])
            assert all(str(value) in request for value in call["arguments"].values())
        template = next(tag for tag in case.tags if tag.startswith("template:")).removeprefix("template:")
        assert (template in offered) == bool(case.body["expected_calls"])
        shapes.add((len(case.body["expected_calls"]), len(offered)))
    assert shapes == {(0, 3), (1, 1), (1, 4), (2, 3)}


def test_every_language_says_every_template():
    for code in LANGUAGES:
        words = language(code)
        assert tuple(words.REQUESTS) == tuple(words.DESCRIPTIONS) == TEMPLATES["tool_calls"]
        assert tuple(words.NOTES) == TEMPLATES["json_extract"]
        assert words.VALUES.keys() == language("es").VALUES.keys()
