"""Java and JavaScript answers read as BFCL reads them: what its own parsers gave on these texts stands in the tables
(commit 6ea57973, tree-sitter 0.21)."""

from __future__ import annotations

import random
import sys
import time

import pytest

from qualgate.records import Case, Evalset
from qualgate.scoring.tools import compat_source
from qualgate.scoring.tools.compat_decode import CannotDecode
from qualgate.scoring.tools.compat_source import NO_CALL, decode_source
from qualgate.scoring.tools.judge import score_compat
from tests.scoring.cases import table
from tests.tables import each_row

NO_SET = Evalset(name="s", version="1", sha256="", metrics=())


def grammars() -> bool:
    try:
        return all(compat_source._grammar(language) for language in ("java", "javascript"))
    except compat_source.NoGrammar:
        return False


needs_grammars = pytest.mark.skipif(not grammars(), reason="the extra bfcl is not installed")
FAILS, NOTHING = "fails", "no call"


def said(text: str, language: str):
    """The one call's name and arguments, NOTHING, or FAILS."""
    try:
        found = decode_source(text, language)
    except CannotDecode:
        return FAILS
    if found is NO_CALL:
        return NOTHING
    [call] = found
    [pair] = call.items()
    return pair


@needs_grammars
@each_row(("language", "text", "call"), table("tools/source"))
def test_what_the_references_parsers_gave(language, text, call):
    found = said(text, language)
    assert (list(found) if isinstance(found, tuple) else found) == call


@needs_grammars
@pytest.mark.parametrize("language", ["java", "javascript"])
def test_what_was_written_as_source_is_read_by_the_rules(language):
    """Calls of simple values in whatever brackets and blanks: the writer knows what must come out."""
    draw = random.Random(9)
    values = {text: text for text in ("5", "-3", "true", "x.y", "g(1, 2)")} | {
        '"a, b = c"': "a, b = c",
        '"it\'s"': "it's",
    }
    if language == "java":
        values |= {"5L": "5L", "'c'": "c", "1 + 2": "1+2", "a ? b : c": "a?b:c", "new int[]{ 1, 2 }": "new int[]{1,2}"}
    else:
        values |= {"10n": "10n", "'c d'": "c d", "1 + 2": "1 + 2", "[ 1, 2 ]": "[ 1, 2 ]", "{k: 1}": "{k: 1}"}
    for _ in range(400):
        name = draw.choice(["f", "Foo.bar", "a.b.c"])
        names = draw.sample(["a", "b", "cd", "e_f"], draw.randint(2, 4))
        given = {parameter: draw.choice(list(values)) for parameter in names}
        equals, comma = draw.choice([("=", ","), (" = ", ", "), ("=", " ,\n ")])
        text = f"{name}({comma.join(parameter + equals + source for parameter, source in given.items())})"
        text = draw.choice(["{}", "[{}]", "```\n[{}]\n```", " [{}", "{};"]).replace("{}", text, 1)
        assert said(text, language) == (name, {parameter: values[source] for parameter, source in given.items()}), text


def case(category: str, expected: str = "f", **accepted) -> Case:
    """One function whose parameters are integers, or texts where a text is accepted."""
    kinds = {"java": ("integer", "String"), "javascript": ("integer", "String")}[category.rpartition("_")[2]]
    properties = {name: {"type": kinds[type(values[0]) is str]} for name, values in accepted.items()}
    tools = [{"name": expected, "parameters": {"type": "dict", "properties": properties, "required": list(accepted)}}]
    body = {"id": "1", "category": category, "tools": tools, "expected_calls": [{expected: accepted}]}
    return Case(evalset="s", body=body)


@needs_grammars
@pytest.mark.parametrize(("category", "text", "verdict", "word"), table("tools/source_verdicts"))
def test_a_text_gets_the_references_verdict_and_word(category, text, verdict, word):
    found = score_compat(case(category, a=[1], b=["x y"]), NO_SET, text)["tool_call.correct"]
    assert (found.verdict, found.error_type) == (verdict, word)
    assert found.scorer == "tool_call.compat/3"


@pytest.mark.parametrize("language", ["java", "javascript"])
def test_without_the_grammars_there_is_no_verdict_rather_than_a_wrong_one(monkeypatch, language):
    monkeypatch.setitem(sys.modules, "tree_sitter", None)
    compat_source._grammar.cache_clear()
    try:
        found = score_compat(case(f"simple_{language}", a=[1]), NO_SET, "[f(a=1)]")["tool_call.correct"]
    finally:
        compat_source._grammar.cache_clear()
    assert (found.verdict, found.error_type) == (None, "not_decodable_here")
    assert "tree_sitter is not installed: `qualgate doctor` shows how to get the extra `bfcl`" in found.reason


@needs_grammars
@pytest.mark.parametrize("language", ["java", "javascript"])
def test_no_source_breaks_or_stalls_the_decoder(language):
    units = ["(", "[", "{", "f(", "a=", '"', "/*", "<", "new int[]{", "`", "${", "=>", "\ud800", "é", "f(a=f("]
    for unit in units:
        start = time.process_time()
        assert said(f"[f(a={unit * (compat_source.MAX_SOURCE // len(unit) - 9)}", language) == FAILS
        assert time.process_time() - start < 5  # a hang, not a speed
    beyond = score_compat(case(f"simple_{language}", a=[1]), NO_SET, "f(a=" + "1" * 10_000_000)["tool_call.correct"]
    assert (beyond.verdict, beyond.error_type) == (None, "too_long")
    assert said("f(a=" + "f(b=" * 400 + "1" + ")" * 401, language) in (
        FAILS,
        ("f", {"a": "f(b=" * 400 + "1" + ")" * 400}),
    )
