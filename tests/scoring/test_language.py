"""`format.same_language` by language: what is told, what is null and why, and that no text stalls it."""

from __future__ import annotations

import time

import pytest

from qualgate.evalsets import sets
from qualgate.records import Case, Evalset
from qualgate.scoring.answer_format import same_language
from qualgate.scoring.language import KIN, language_fault, languages
from tests.scoring.cases import table
from tests.tables import each_row
from tests.verification.references.language_texts import TEXTS

ES, DE, ZH, JA = (TEXTS[code] for code in ("es", "de", "zh", "ja"))


def said(text: str, **body) -> tuple[float | None, str]:
    score = same_language(Case(evalset="e", body={"id": "1", "prompt": "12 + 30 =", **body}), text)
    return score.value, score.error_type or ""


RIGHT, OTHER, MIXED = (1.0, ""), (0.0, "language"), (0.0, "mixed")


def test_an_answer_is_in_the_language_of_its_question():
    assert said(ES[1], prompt=ES[0]) == RIGHT
    assert said(DE[1], prompt=ES[0]) == OTHER
    assert said(DE[1], messages=[{"role": "system", "content": DE[0]}, {"role": "user", "content": ES[0]}]) == OTHER
    assert said(DE[1], messages=[{"role": "user", "content": ES[0]}, {"role": "assistant", "content": ES[1]},
                                 {"role": "user", "content": DE[0]}]) == RIGHT  # fmt: skip


def test_a_reference_may_be_in_another_language_than_the_question():
    assert said(DE[1], prompt=ES[0], answer=DE[2]) == RIGHT


def test_language_of_a_case_goes_before_its_question():
    assert said(DE[1], prompt=ES[0], language="de") == RIGHT
    assert said(ES[1], prompt=ES[0], language="de") == OTHER
    assert said(ZH[1], prompt=ES[0], language="zh") == RIGHT, "of a script that the question does not hold"


def test_a_fifth_may_be_in_another_language_and_no_more():
    assert said(" ".join([*ES, DE[1]]), language="es") == RIGHT
    assert said(" ".join([ES[0], DE[1]]), language="es") == OTHER


def test_words_glued_from_two_scripts_are_named():
    score = same_language(Case(evalset="e", body={"id": "1", "prompt": "How is the weather?"}), "The weather很好 today")
    assert (score.value, score.error_type) == (0.0, "mixed")
    assert score.reason == "a word of several scripts: 'weather很好' (cjk, latin)"
    assert said("It is the приvetливый one of them all, as it was said before", prompt="Which one?") == MIXED
    assert said(ES[0].replace("puente", "puenteमौसम"), prompt=ES[1]) == MIXED
    assert said("2 πr², Δx of 3 µm and Ωm", prompt="What is it?") == RIGHT, "formulas"
    assert said(JA[0], prompt="東京はどこですか") == RIGHT, "Japanese is written in three"
    assert said("USB接口 works", prompt="USB 接口?") == RIGHT, "the question holds both"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Sí.", "short"), ("42", "short"), ("", "short"), ('{"color": "rojo", "tamaño": "grande"}', "code"),
        ("```python\nfor one in rows:\n    print(one)\n```", "code"), ("qx zrt wvk " * 8, "unclear"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_null_where_the_case_names_a_language_and_right_by_its_script_where_not(text, why):
    assert said(text, language="es") == (None, why)
    assert said(text, prompt=ES[0]) == RIGHT
    assert said("北京是中国的首都。", prompt=ES[0]) == OTHER, "by its script alone"


def test_answers_for_programs_are_of_no_language():
    assert said(DE[1], prompt=ES[0], schema={}) == RIGHT
    assert said(DE[1], language="es", tools=[]) == (None, "code")


def test_code_and_addresses_in_an_answer_are_not_read():
    code = "\n```python\nfor the_one in the_list:\n    print('hello to the world', the_one)\n```\n"
    assert said(ZH[1] + code + ZH[2] + " https://example.org/the/long/english/address", language="zh") == RIGHT


def test_a_program_without_a_fence_is_code_not_english():
    program = (
        "def the_first_of(the_list):\n    for one in the_list:\n        return one\n    raise ValueError('nothing')\n"
    )
    assert said(program, prompt=DE[0]) == RIGHT
    assert said(program, language="de") == (None, "code")
    assert said(TEXTS["en"][0], prompt=DE[0]) == OTHER


def test_a_language_that_is_not_told_is_null_with_the_nearest_code():
    score = same_language(Case(evalset="e", body={"id": "1", "prompt": "?", "language": "spa"}), ES[0])
    assert (score.value, score.error_type) == (None, "no_language")
    assert "such as en, es, zh; found 'spa'" in score.reason
    assert said(ES[0], language=["es"]) == (None, "no_language")


def test_kin_are_languages_that_are_told():
    assert set.union(*KIN) <= languages()
    assert TEXTS.keys() - {"da"} <= languages() | {"no"}


HOSTILE = [DE[0] * 10_000, ZH[0] * 40_000, "\\(" * 500_000, "$" * 1_000_000, "`" * 999_999, "<" * 1_000_000,
           "." * 1_000_000, "a\u0301\u0316" * 333_333, "\ud800\udfff" * 500_000, "weather很好 " * 100_000,
           "https://" * 125_000, "".join(map(chr, range(0x110000)))]  # fmt: skip


@each_row("body", [{"prompt": ES[0]}, {"language": "es"}, {"prompt": DE[0] * 20_000}])
@each_row("number", range(len(HOSTILE)))
def test_a_million_characters_take_less_than_a_second(number, body):
    said("warm", **body)
    start = time.process_time()
    said(HOSTILE[number], **body)
    assert time.process_time() - start < 1


def written(folder, header: str, case: str):
    (folder / "s.yaml").write_text(f"name: s\nversion: 1\nmetrics: [format.same_language]\n{header}", encoding="utf-8")
    (folder / "s.jsonl").write_text(case + "\n", encoding="utf-8")
    return folder / "s.yaml"


def test_a_set_says_it_for_its_cases_and_a_code_that_is_not_told_is_refused(tmp_path):
    case = '{"id": "a", "prompt": "When?", "max_new_tokens": 8}'
    found = sets.read(written(tmp_path, "language: es\n", case))
    assert isinstance(found, Evalset)
    assert found.cases[0].body["language"] == "es"
    plain = sets.read(written(tmp_path, "", case))
    assert isinstance(plain, Evalset)
    assert plain.sha256 != found.sha256
    assert "code of one that is told" in str(sets.check(written(tmp_path, "language: spanish\n", case))[0])
    named = case.replace('"max', '"language": "german", "max')
    assert "found 'german'" in str(sets.check(written(tmp_path, "", named))[0])


BY_LANGUAGE = table("languages")
SHORT, MARKED = BY_LANGUAGE["short"], BY_LANGUAGE["marked"]
ELSEWHERE = ("Translate: Good morning, world", "翻译：早上好，世界", "Переведи: доброе утро, мир")


@pytest.mark.parametrize("language", SHORT)
def test_a_short_answer_in_the_declared_language_is_never_wrong_for_the_questions_script(language):
    for prompt in ELSEWHERE:
        fault = language_fault({"prompt": prompt, "language": language}, SHORT[language])
        assert fault is None or fault[:2] == (None, "short"), (prompt, fault)


def test_a_short_answer_in_neither_script_is_still_wrong():
    for language in ("zh", "ja", "ta"):
        fault = language_fault({"prompt": ELSEWHERE[0], "language": language}, SHORT["ru"])
        assert fault is not None
        assert fault[:2] == (0.0, "language")


@pytest.mark.parametrize("language", MARKED)
def test_vowel_signs_count_among_the_letters_that_a_language_is_told_by(language):
    assert language_fault({"prompt": ELSEWHERE[0], "language": language}, MARKED[language]) is None
    other = "ta" if language != "ta" else "te"
    fault = language_fault({"prompt": ELSEWHERE[0], "language": other}, MARKED[language])
    assert fault is not None
    assert fault[:2] == (0.0, "language")


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("code", "question", "answer"), BY_LANGUAGE["glued"])
def test_a_word_of_two_scripts_is_found_whether_the_language_is_named_or_not(code, question, answer, named):
    body = {"prompt": question} | ({"language": code} if named else {})
    fault = language_fault(body, answer)
    assert fault is not None
    assert fault[:2] == (0.0, "mixed")


@pytest.mark.parametrize(("code", "question", "answer"), BY_LANGUAGE["names"])
def test_latin_names_within_the_words_of_a_script_without_blanks_are_its_own(code, question, answer):
    assert language_fault({"prompt": question, "language": code}, answer) is None
