from __future__ import annotations

from pathlib import Path

from qualgate import refmodel
from qualgate.bench.assisted import Assisted, fastest
from qualgate.bench.questions import asked_of
from qualgate.bench.turns import Turn


def test_whoever_assists_the_answer_is_the_model_s():
    peer = Assisted(Path(refmodel.PATH), [2])
    [prompt] = asked_of({"code": ("code",)}, 1)["code"]
    alone = peer.alone()(prompt)
    assert 1 < len(alone.tokens) <= prompt.max_new_tokens
    assert alone.seconds > 0
    assert alone.decoding is None
    assert peer.by_lookup(3)(prompt).tokens == alone.tokens
    assert peer.by_model(Path(refmodel.PATH))(prompt).tokens == alone.tokens


def test_the_fastest_way_is_found_by_what_it_says_it_took():
    def way(seconds):
        return lambda prompt: Turn(tokens=(), seconds=seconds)

    [prompt] = asked_of({"code": ("code",)}, 1)["code"]
    assert fastest([way(3.0), way(1.0), way(2.0)], [prompt]) == 1
