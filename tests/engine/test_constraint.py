"""A mask admits what its grammar does, whatever it was asked before: drafts, rejections, ends, errors."""

from __future__ import annotations

import random
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from llguidance import LLTokenizer, TokenizerWrapper

from qualgate.engine.constraint import GrammarMask, Vocabulary
from qualgate.engine.prompts import load_tokenizer
from qualgate.errors import UsageError
from qualgate.quant.model_files import read_files
from qualgate.refmodel import PATH
from qualgate.scoring.constraint import grammar_of
from tests.engine.engines import END

SCHEMA = {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}}, "required": ["a"],
    "additionalProperties": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(read_files(PATH))


@pytest.fixture(scope="module")
def vocabulary(tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer, {END})


def mask(vocabulary: Vocabulary, **constraint: Any) -> GrammarMask:
    return GrammarMask(vocabulary, grammar_of(constraint))


def admitted(row: bytes) -> set[int]:
    return {token for token, yes in enumerate(row) if yes}


class Bytes:
    """A tokenizer as the library wants it of anybody."""

    eos_token_id, bos_token_id, special_token_ids = 256, None, (256,)

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens

    def __call__(self, text: bytes) -> list[int]:
        return [byte for byte in text if self.tokens[byte] == bytes([byte])]


def without(missing: str) -> Vocabulary:
    """Of single bytes, but those of these characters, and an end token."""
    tokens = [bytes([byte]) if chr(byte) not in missing else b"\xff" for byte in range(256)] + [b"<end>"]
    known = LLTokenizer(TokenizerWrapper(Bytes(tokens)))
    return cast("Vocabulary", SimpleNamespace(tokens=known, stop_ids=frozenset({256})))


def test_walks_by_the_mask_say_what_the_grammar_admits_and_end_only_there(vocabulary, tokenizer):
    pattern = "(ab|b+c){1,3}d?"
    for seed in range(20):
        draw, said, one = random.Random(seed), list[int](), mask(vocabulary, regex=pattern)
        while True:
            [row] = one.admitted(said, [])
            assert (END in admitted(row)) == bool(re.fullmatch(pattern, tokenizer.decode(said)))
            token = draw.choice(sorted(admitted(row)))
            if token == END or len(said) > 40:
                break
            said.append(token)


def test_a_draft_and_its_rejection_leave_no_trace(vocabulary):
    """Any order of texts and drafts gives each row the mask that a fresh one gives it."""
    whole = [mask(vocabulary, json_schema=SCHEMA), list[list[int]]()]
    one, texts = whole
    draw = random.Random(1)
    for _ in range(12):  # answers, right ones
        said, fresh = list[int](), mask(vocabulary, json_schema=SCHEMA)
        while len(said) < 16:
            [row] = fresh.admitted(said, [])
            token = draw.choice(sorted(admitted(row)))
            if token == END:
                break
            said.append(token)
        texts.append(said)
    for _ in range(60):
        text = draw.choice(texts)
        at = draw.randrange(len(text) + 1)
        offered = [*text[at : at + draw.randrange(5)], *draw.choice([[], [5], draw.choice(texts)[:3]])]
        rows = one.admitted(text[:at], offered)
        for count, row in enumerate(rows):
            assert [row] == mask(vocabulary, json_schema=SCHEMA).admitted([*text[:at], *offered[:count]], [])
        if len(rows) <= len(offered):
            assert offered[len(rows) - 1] not in admitted(rows[-1]) - {END}


def test_a_grammar_that_ends_in_a_draft_admits_the_end_there_and_no_row_behind(vocabulary, tokenizer):
    offered = [token for part in ("abc", "ab") for token in tokenizer.encode(part, add_special_tokens=False)]
    rows = mask(vocabulary, regex="abc").admitted([], offered)
    over = next(count for count, row in enumerate(rows) if admitted(row) == {END})
    assert tokenizer.decode(offered[:over]) == "abc"
    assert len(rows) == over + 1
    assert mask(vocabulary, regex="abc").admitted(offered, []) == []


def test_an_end_token_in_a_draft_is_the_last_row(vocabulary, tokenizer):
    offered = [*tokenizer.encode("abc", add_special_tokens=False), END, 5, 6]
    one = mask(vocabulary, regex="abc")
    assert len(one.admitted([], offered)) == len(offered) - 2
    assert len(one.admitted([], offered[:2])) == 3


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": r"[^\x00-\x{10ffff}]"}, {"grammar": 'start: start "a"'}, {"json_schema": {"$ref": "#"}},
    ],
)  # fmt: skip
def test_a_grammar_that_nothing_fulfils_admits_nothing_and_no_end(vocabulary, constraint):
    [row] = mask(vocabulary, **constraint).admitted([], [])
    assert not admitted(row)


def test_characters_that_are_in_no_token_are_a_dead_end():
    words = without("b")
    one = mask(words, regex="a(b|c)b")
    assert [admitted(row) for row in one.admitted([], [ord("a"), ord("c")])] == [{ord("a")}, {ord("c")}, set()]
    assert [admitted(row) for row in one.admitted([], [])] == [{ord("a")}], "and the mask goes on to serve"


def test_an_error_of_the_library_at_a_token_that_was_rejected_spoils_nothing(vocabulary, monkeypatch):
    one = mask(vocabulary, json_schema=SCHEMA)
    first = one.admitted([], [])

    class Failed:
        def is_error(self) -> bool:
            return True

    one._matcher = cast("Any", Failed())
    assert one.admitted([], []) == first


def test_a_grammar_that_does_not_compile_is_named(vocabulary):
    with pytest.raises(UsageError, match=r"A constraint cannot be used: .*unclosed"):
        mask(vocabulary, regex="(a")
