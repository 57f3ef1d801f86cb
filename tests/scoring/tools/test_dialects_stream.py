"""Reading in pieces equals reading whole, whatever the text and the cuts; what is written reads back; nothing but
BadCall is ever raised."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.scoring.tools.dialects import BadCall, Call, hermes
from qualgate.scoring.tools.dialects.harmony import MARKERS
from qualgate.scoring.tools.dialects.registry import dialect, names
from qualgate.scoring.tools.dialects.shipped import SHIPPED
from qualgate.scoring.tools.dialects.stream import Dialect
from tests.depth import examples
from tests.scoring.tools.published import PUBLISHED, TOOLS
from tests.tables import each_row

# Dialects that differ in name and source alone are read once.
GRAMMARS = [name for name in names() if name in PUBLISHED]


def outcome(form: Dialect, pieces: list[str]) -> tuple[list[Call], str, str, str]:
    """Calls, content, error type and reason of an answer that comes in pieces."""
    stream, calls = form.stream(TOOLS), []
    try:
        for piece in pieces:
            calls += stream.feed(piece)
        calls += stream.close()
    except BadCall as error:
        return stream.calls, "", error.error_type, str(error)
    assert calls == stream.calls
    return calls, stream.content, "", ""


def parsed(form: Dialect, text: str) -> tuple[tuple[Call, ...], str, str]:
    try:
        return form.parse(text, TOOLS), "", ""
    except BadCall as error:
        return (), error.error_type, str(error)


def whole(form: Dialect, text: str) -> tuple[list[Call], str, str, str]:
    """In one piece: by a stream, and the same by `parse`."""
    calls, content, word, reason = outcome(form, [text])
    assert parsed(form, text) == (() if word else tuple(calls), word, reason)
    return calls, content, word, reason


@each_row("name", GRAMMARS)
def test_every_cut_of_a_published_answer_reads_as_the_whole(name):
    form = dialect(name)
    for text in (PUBLISHED[name].one, PUBLISHED[name].two):
        expected = whole(form, text)
        assert not expected[2]
        assert outcome(form, list(text)) == expected
        for cut in range(len(text) + 1):
            assert outcome(form, [text[:cut], text[cut:]]) == expected


ENDS_OF_LISTS = ("</tool_calls>", "</TOOLCALL>", "<|END_ACTION|>", "<|tools_suffix|>", "</function_calls>")


@each_row("name", GRAMMARS)
def test_calls_come_as_soon_as_they_are_complete(name):
    text, stream = PUBLISHED[name].two, dialect(name).stream(TOOLS)
    came = [place for place, piece in enumerate(text) for _ in stream.feed(piece)]
    came += [len(text) for _ in stream.close()]
    assert len(came) == 2
    # A list is read when it is complete, and so is Harmony's last message; every other first call before the second.
    together = text[came[0] : came[0] + 1] == "]" or dialect(name).close in ENDS_OF_LISTS or name in ("openai", "lfm2")
    assert came[0] == came[1] if together else came[0] < came[1]


def test_content_is_what_is_no_call():
    pieces = ['Hi <b>!\n<tool_call>{"name": "f", "arguments": {}}</tool_c', "all> Bye <"]
    assert outcome(dialect("hermes"), pieces)[1] == "Hi <b>!\n Bye <"
    assert outcome(dialect("json"), ['{"an', 'swer": 4}'])[1] == '{"answer": 4}'


def alphabet(name: str) -> list[str]:
    """Pieces from which almost-answers of a dialect are made."""
    form = dialect(name)
    markers = [*form.open, form.close, *(form.frame or ()), *form.stray, *(MARKERS if name == "harmony" else ())]
    text = PUBLISHED[name].one
    common = [*"\n \"'\\{}[]()x;\ud800", "<think>", "</think>", "```", "<|im_end|>"]
    return [*filter(None, markers), *common, text, text[: len(text) // 2], text[len(text) // 2 :], text[5:], text[:-1]]


@each_row("name", GRAMMARS)
def test_any_text_in_any_pieces_reads_as_the_whole_and_raises_nothing_else(name):
    form, parts = dialect(name), st.lists(st.sampled_from(alphabet(name)), max_size=8)

    @examples(40)
    @given(parts, st.lists(st.integers(0, 400), max_size=6))
    def check(parts, cuts):
        text = "".join(parts)
        places = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
        expected = whole(form, text)
        assert outcome(form, [text[a:b] for a, b in itertools.pairwise(places)]) == expected
        assert outcome(form, parts) == expected

    check()


@examples(40)
@given(st.text(st.characters(), max_size=80))
def test_arbitrary_text_raises_nothing_but_bad_call(text):
    for form in SHIPPED.values():
        whole(form, text)


NAMES = st.text("abcxyz_", min_size=1, max_size=6).filter(lambda name: name not in ("as", "by", "_"))
STRINGS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.sampled_from(
        ["<tool_call>", "[TOOL_CALLS]", "</tool_calls> <|call|>", 'a"b\\', "functools[", "5", "true", "```"]
    ),
)
NUMBERS = st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | STRINGS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
KINDS = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def documented(call: Call) -> dict:
    """A tool whose parameters have the types of a call's arguments."""
    kinds = {key: {"type": KINDS.get(type(value), "null")} for key, value in call.arguments.items()}
    return {"name": call.name, "parameters": {"properties": kinds}}


@each_row("name", names())
def test_what_is_written_reads_back(name):
    form, written = dialect(name), []

    @examples(25)
    @given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=3))
    def check(made):
        calls = tuple(Call(*item) for item in made.items())
        tools = [documented(call) for call in calls]
        try:
            text = form.serialise(calls)
        except ValueError:
            return  # a value or name that the dialect cannot express
        written.append(text)
        assert form.parse(text, tools) == calls
        assert (text == "") == (not calls)
        read = [call.arguments for call in form.parse(text, tools)]
        assert json.dumps(read) == json.dumps([call.arguments for call in calls])  # 1 and 1.0 apart

    check()
    assert len(written) > 5


def test_what_a_dialect_cannot_express_is_refused():
    for name, call in (
        ("qwen3_coder", Call("f", {"a": "</parameter>"})),
        ("functiongemma", Call("f", {"a": "<escape>"})),
        ("pythonic", Call("f", {"class": 1})),
        ("mistral_v11", Call("f g", {})),
        ("kimi_k2", Call("a:b", {})),
        ("harmony", Call("f<|call|>", {})),
    ):
        with pytest.raises(ValueError, match=r"cannot be written|is no name"):
            dialect(name).serialise([call])


def seconds_of(read: Callable[[], object]) -> float:
    start = time.process_time()
    with contextlib.suppress(BadCall):
        read()
    return time.process_time() - start


# What patterns may look for again and again inside of a value, and what a text may open again and again.
INSIDE = (
    " ",
    "\n ",
    "<arg_key>",
    "</arg_key><arg_value>",
    "<parameter=a>1</parameter>",
    '<parameter name="',
    '\\"',
    "&",
)
OPENED = ("", "{", '{"a": "', " ")
BARE = ('["\\', "```", "<think>", "</think>", " ", "<" * 5, "a=1,")


def repeated(name: str) -> Iterator[tuple[str, str, str]]:
    """What stands before, again and again, and behind."""
    form = dialect(name)
    begin = (form.frame or form.open or (form.anchors[:1],))[0]
    yield from (("", unit, "") for unit in (*(begin + opened for opened in OPENED), *BARE))
    before, after = form.serialise([Call("f", {"a": 1, "b": "QQQQ"})]).split("QQQQ")
    yield from ((before, unit, end) for unit in INSIDE for end in (after, after.lstrip('"')))


@each_row("name", GRAMMARS)
def test_time_is_linear_in_whatever_is_repeated(name):
    """Eight times the text takes no more than thirty times as long."""
    form = dialect(name)
    for before, unit, behind in repeated(name):
        texts = [before + unit * repeat + behind for repeat in (1_000, 8_000)]
        short, long = (seconds_of(partial(outcome, form, [text])) for text in texts)
        assert long < 30 * short + 0.05, (unit, behind)


def test_time_is_linear_in_a_name_and_in_the_ends_of_a_turn_and_in_pieces():
    plamo = dialect("plamo3")
    named = plamo.serialise([Call("QQQQ", {})])
    assert seconds_of(lambda: plamo.parse(named.replace("QQQQ", "f" + " " * 20_000 + "<"), TOOLS)) < 1
    answer = dialect("hermes").serialise([Call("f", {})]) + "</s>" * 2**18
    assert seconds_of(lambda: hermes(answer)) < 1
    long = f'<tool_call>{{"name": "f", "arguments": {{"a": "{"x" * 100_000}"}}}}</tool_call>'
    assert seconds_of(lambda: outcome(dialect("hermes"), list(long))) < 2
    assert tuple(outcome(dialect("hermes"), list(long))[0]) == hermes(long)
