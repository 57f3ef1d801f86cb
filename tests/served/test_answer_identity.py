"""By which hash a reply is known again: another arm's reply out of a cache, however it is sent on."""

from __future__ import annotations

from typing import Any

import pytest

from qualgate.served.answer import Gathering
from qualgate.served.replies import Completed

LONG, SHORT = "chatcmpl-4c7cc97b11b0494c9262bfa76446d2fd", "chatcmpl-437"


def reply(*texts: str, id: Any = LONG, created: Any = 5, stream: bool = True) -> str:
    gathering = Gathering()
    for at, text in enumerate(texts):
        end = "stop" if at == len(texts) - 1 else None
        told = {"delta" if stream else "message": {"content": text}}
        choice = {"index": 0, "finish_reason": end, **told}
        gathering.take(Completed.model_validate({"id": id, "created": created, "choices": [choice]}), 0.0)
    return gathering.answer(1.0).reply


def test_a_long_id_with_its_text_is_the_reply_whatever_its_time_and_pieces():
    assert len({reply("a b"), reply("a", " b"), reply("a b", created=9), reply("a b", stream=False)}) == 1
    assert reply("a b") != reply("a c")
    assert reply("a b", id=LONG.replace("4c", "5c")) != reply("a b")


@pytest.mark.parametrize("id", [SHORT, "7", "chatcmpl-0000000000000000000012"])
def test_a_short_id_counts_with_its_time_alone_and_is_marked(id):
    assert reply("a", id=id).endswith("?")
    assert reply("a", id=id) != reply("a", id=id, created=9)
    assert reply("a", id=id, created=None) == ""


def test_without_an_id_nothing_is_known():
    assert reply("a", id="") == reply("a", id=None) == ""
