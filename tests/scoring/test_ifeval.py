"""IFEval's instructions, by hand."""

from __future__ import annotations

import re
import time

import pytest

from qualgate.scoring.ifeval import INSTRUCTIONS, faults, language, loosened, score_ifeval
from qualgate.scoring.ifeval.checks import Instruction
from qualgate.scoring.ifeval.words import capital_words, sentences
from tests.scoring.cases import table
from tests.tables import each_row


def body(*instructions: tuple[str, dict]) -> dict:
    return {"instruction_id_list": [name for name, _ in instructions], "kwargs": [given for _, given in instructions]}


def follows(name: str, text: str, **arguments) -> bool | None:
    assert list(faults(body((name, arguments)))) == []
    return score_ifeval(body((name, arguments)), text)["ifeval.inst_strict"].verdict


BY_HAND = table("ifeval")


@each_row(("name", "arguments", "good", "bad"), BY_HAND)
def test_by_hand(name, arguments, good, bad):
    assert (follows(name, good, **arguments), follows(name, bad, **arguments)) == (True, False)


def test_all_published_instructions_are_here():
    assert len(INSTRUCTIONS) == 25
    assert {name for name, *_ in BY_HAND} | {
        "language:response_language", "change_case:english_capital", "change_case:english_lowercase"
    } == set(INSTRUCTIONS)  # fmt: skip


def test_languages():
    pytest.importorskip("langdetect")
    german = "Das ist ein ganz gewöhnlicher Satz über das Wetter in Berlin."
    assert follows("language:response_language", german, language="de") is True
    assert follows("language:response_language", german, language="en") is False
    assert follows("language:response_language", "123 456", language="kn") is True  # nothing to tell it by
    english = "This is a very ordinary sentence about the weather in London."
    assert follows("change_case:english_lowercase", english.lower()) is True
    assert follows("change_case:english_lowercase", english) is False
    assert follows("change_case:english_capital", english.upper()) is True
    assert follows("change_case:english_capital", german.upper()) is False


def test_a_language_is_the_same_every_time():
    pytest.importorskip("langdetect")
    mixed = "le the el la not pas no ja so"
    language.language.cache_clear()
    first = language.language(mixed)
    for _ in range(5):
        language.language.cache_clear()
        assert language.language(mixed) == first


def test_without_langdetect_there_is_no_verdict(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "langdetect", None)
    language.language.cache_clear()
    asked = body(("language:response_language", {"language": "en"}), ("punctuation:no_comma", {}))
    found = score_ifeval(asked, "Hello there")
    assert {score.verdict for score in found.values()} == {None}
    assert "extra `harness`" in found["ifeval.prompt_strict"].reason
    found = score_ifeval(asked, "Hello, there")
    assert (found["ifeval.prompt_strict"].verdict, found["ifeval.inst_strict"].verdict) == (False, None)
    language.language.cache_clear()


def test_loose_forgives_a_preamble_and_stars():
    asked = body(("startend:quotation", {}), ("punctuation:no_comma", {}))
    found = score_ifeval(asked, 'Sure, here:\n**"Quoted"**\nBye, now')
    assert {name: (score.value, score.verdict) for name, score in found.items()} == {
        "ifeval.prompt_strict": (0.0, False), "ifeval.inst_strict": (0.0, False),
        "ifeval.prompt_loose": (1.0, True), "ifeval.inst_loose": (1.0, True),
    }  # fmt: skip
    assert len(loosened("a")) == 2
    half = score_ifeval(asked, "no comma")["ifeval.inst_strict"]
    assert (half.value, half.extracted, half.error_type) == (0.5, "[false, true]", "startend:quotation")
    assert score_ifeval(asked, " \n ")["ifeval.inst_loose"].extracted == "[false, false]"


@pytest.mark.parametrize(("name", "arguments", "reason"), table("ifeval_faults"))
def test_arguments_that_lm_eval_would_draw_by_lot_are_refused(name, arguments, reason):
    assert reason in next(iter(faults(body((name, arguments)))))
    found = score_ifeval(body((name, arguments)), "text")
    assert {(score.verdict, score.error_type) for score in found.values()} == {(None, "case")}


def test_arguments_without_a_value_are_not_given():
    published = {"num_words": None, "keywords": None, "relation": "at least", "frequency": 1, "keyword": "a"}
    assert follows("keywords:frequency", "a", **published) is True


@each_row(("text", "count"), table("ifeval_words")["sentences"])
def test_sentences(text, count):
    assert sum(1 for _ in sentences(text)) == count


@pytest.mark.parametrize(("text", "count"), table("ifeval_words")["capitals"])
def test_capital_words(text, count):
    assert capital_words(text) == count


@pytest.mark.parametrize("mark", ["#", "!", "?", "é", "4"])
def test_a_sign_that_a_published_row_asks_for_is_counted_and_never_drawn_by_lot(mark):
    """Keys 1122 and 1129 ask for "#" and "!"."""
    asked = body(("keywords:letter_frequency", {"letter": mark, "let_frequency": 4, "let_relation": "at least"}))
    assert not list(faults(asked))
    said = {times: score_ifeval(asked, "so " + f"{mark}x " * times)["ifeval.prompt_strict"].verdict for times in (3, 4)}
    assert said == {3: False, 4: True}


HOSTILE = ["[" * 2**17, "<<" * 2**16, "\n" * 2**17, " " * 2**17, "*\n" * 2**16, "a.)" * 2**15, ". " * 2**15,
           "\u202e\x1b[31m\x00\ud800", "9" * 5_000, "[" * 100_000 + "1", "p. " * 2**15, "x" * 10_000_000]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:4]))
def test_no_answer_makes_an_instruction_fail_or_hang(text):
    fixed = {"count": 3, "relation": "at least", "letter": "a", "texts": ["cat"], "text": "cat"}
    for name, instruction in INSTRUCTIONS.items():
        given = {argument: fixed[kind] for argument, kind in instruction.needs.items()}
        start = time.process_time()
        found = score_ifeval(body((name, given)), text)["ifeval.inst_loose"]
        assert time.process_time() - start < 2, name
        assert found.verdict in (True, False, None)
        assert re.search("[\ud800-\udfff]", found.reason) is None
        assert isinstance(instruction, Instruction)


def test_a_keyword_that_takes_forever_gives_no_verdict(stopped):
    found = score_ifeval(body(("keywords:existence", {"keywords": ["(a+)+$"]})), "a" * 40 + "!")["ifeval.prompt_strict"]
    assert (found.verdict, found.error_type) == (None, "instruction")
