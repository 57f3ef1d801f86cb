"""BFCL's two text formats. The expected values are what its own `ast_parse` gives for these texts."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.scoring.tools.compat_decode import CannotDecode, decode, decode_function_calling
from tests.tables import each_row


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ('[f(a=1), g.h(b="x")]', [{"f": {"a": 1}}, {"g.h": {"b": "x"}}]),
        ("f(a=1)", [{"f": {"a": 1}}]),
        ("[f(a=1)", [{"f": {"a": 1}}]),
        ("```\n[f(a=1)]\n```", [{"f": {"a": 1}}]),
        ("f(a=1), g()", [{"f": {"a": 1}}, {"g": {}}]),
        ("[]", []),
        ("", []),
        ("[f(1, a=2)]", [{"f": {"a": 2}}]),
        ("[f(a=x, b=x.y[0], c=g(1), d=g(e=2))]", [{"f": {"a": "x", "b": "x.y[0]", "c": "g(1)", "d": {"g": {"e": 2}}}}]),
        ("[f(a=-1, b=+1, c=not True, d=-1.5)]", [{"f": {"a": -1, "b": -1, "c": -1, "d": -1.5}}]),
        ("[f(a=[1, (2,)], b={'k': None}, c=...)]", [{"f": {"a": [1, (2,)], "b": {"k": None}, "c": "..."}}]),
        ("[f(a=2 * 3 + -1, b='a' * 3, c=[0] * 2, d=1 / 4, e=2 ** 10)]",
         [{"f": {"a": 5, "b": "aaa", "c": [0, 0], "d": 0.25, "e": 1024}}]),
        ("[f(**x)]", [{"f": {None: "x"}}]),
        ("[x[0].f(a=1)]", [{"f": {"a": 1}}]),
        (r"[f(a='\d')]", [{"f": {"a": r"\d"}}]),
    ],
)  # fmt: skip
def test_prompt_mode(text, calls):
    assert decode(text) == calls


@each_row(
    "text",
    ["I cannot do that.", "[1]", "[f]", "[[f()]]", "```python\n[f()]\n```", "[f(a=x.y)]", "[f(a=lambda: 1)]",
     "[f(a={1, 2})]", "[f(a=1 < 2)]", "[f(a=-x)]", "[f(a={[1]: 2})]", "[f(a=1 / 0)]", "[f(a=x * 2)]", '[{"f": {}}]',
     "[f(a=f'{x}')]", "[f(a=-'x')]", "f(", "\0", "\ud800"],
)  # fmt: skip
def test_what_is_no_list_of_calls(text):
    with pytest.raises(CannotDecode):
        decode(text)


def test_nothing_is_ever_run(tmp_path):
    target = tmp_path / "made"
    for run in (f"open({str(target)!r}, 'w')", "(lambda: 1 / 0)()", "__import__('os').getpid()"):
        for text in (f"[f(a={run})]", f"[f(a=1 * {run})]", f"[f(a={run} + 1)]", f"[f(a=[x for x in {run}])]"):
            with contextlib.suppress(CannotDecode):
                decode(text)
    assert not target.exists()


def test_function_calling_mode():
    assert decode_function_calling('[{"f": {"a": [1, null]}}]') == [{"f": {"a": [1, None]}}]
    assert decode_function_calling('[{"f": "{\\"a\\": 1}"}]') == [{"f": {"a": 1}}]
    assert decode_function_calling("[]") == []
    for text in ("[f()]", '[{"f": "a=1"}]', '[{"f": ' + '{"a":' * 70 + "1" + "}" * 71 + "]", "[" * 100_000):
        with pytest.raises(CannotDecode):
            decode_function_calling(text)


BOMBS = (
    "9**9**9", "2**99999999", "1<<99999999999", "9*" * 60_000 + "9", "[[0]*9999]*9999", "'a'*99999999",
    "'%99999999d' % 5", "-" * 120_000 + "1", "1+" * 60_000 + "1", "(" * 60_000, "[" * 190 + "]" * 190,
    "x" + "[0]" * 40_000, "9" * 100_000,
    "e" + "\u0301\u0316" * 50_000,
    "{1:" * 190, "lambda:" * 15_000, "2.0**99999", "'a' " * 20_000, "f(" * 190 + ")" * 190,
)  # fmt: skip


@pytest.mark.parametrize("text", BOMBS, ids=lambda text: text[:12])
def test_no_text_takes_long(text):
    start = time.process_time()
    with contextlib.suppress(CannotDecode):
        assert len(repr(decode(f"[f(a={text})]"))) < 200_000
    assert time.process_time() - start < 5  # a hang, not a speed


@given(st.text(st.characters(), max_size=40) | st.text("[]{}()f,=.'\"*+-1a: \n`", max_size=40))
def test_any_text_gives_calls_or_a_reason(text):
    for read in (decode, decode_function_calling):
        with contextlib.suppress(CannotDecode):
            read(text)
