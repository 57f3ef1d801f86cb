from __future__ import annotations

from pathlib import Path

from qualgate import refmodel
from qualgate.bench.assisted import Assisted
from qualgate.bench.questions import asked_of


def test_whoever_assists_the_answer_is_the_model_s():
    peer = Assisted(Path(refmodel.PATH), [2])
    [prompt] = asked_of({"code": ("code",)}, 1)["code"]
    alone = peer.alone()(prompt)
    assert 1 < len(alone.tokens) <= prompt.max_new_tokens
    assert alone.seconds > 0
    assert alone.decoding is None
    assert peer.by_lookup(3)(prompt).tokens == alone.tokens
    assert peer.by_model(Path(refmodel.PATH))(prompt).tokens == alone.tokens
