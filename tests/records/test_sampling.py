"""What a way to choose tokens is known by, and which are none."""

from __future__ import annotations

import pytest

from qualgate.records import GREEDY, Sampling


def test_what_cuts_nothing_is_known_by_what_it_was_before_anything_could_cut():
    """Stored runs stay comparable: these bytes are in their identities."""
    assert GREEDY.content == {"temperature": 0}
    assert Sampling(temperature=0.7).content == {"temperature": 0.7, "noise": "gumbel/1"}
    assert Sampling(temperature=0.7, top_k=0, top_p=1.0, min_p=0.0) == Sampling(temperature=0.7)
    assert Sampling(repetition_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0).content == GREEDY.content


def test_every_cut_and_penalty_is_known_by_itself_and_comes_back_from_what_it_is_known_by():
    ways = [
        Sampling(temperature=0.7),
        Sampling(temperature=0.7, top_k=40),
        Sampling(temperature=0.7, top_p=0.9),
        Sampling(temperature=0.7, min_p=0.1),
        Sampling(temperature=0.7, top_k=40, top_p=0.9, min_p=0.1),
        Sampling(temperature=0.7, repetition_penalty=1.1),
        Sampling(repetition_penalty=1.1),
        Sampling(presence_penalty=0.5),
        Sampling(frequency_penalty=-0.5, presence_penalty=0.5),
    ]
    contents = [way.content for way in ways]
    assert all(one not in contents[:place] for place, one in enumerate(contents))
    assert [Sampling.of({"prompt": "x", **content}) for content in contents] == ways
    assert Sampling.of({"prompt": "x"}) == Sampling.of(GREEDY.content) == GREEDY
    assert len({way: sorted(ways).index(way) for way in ways}) == len(ways), "batches lay them out in an order"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"top_k": -1}, "top_k"), ({"top_k": 1.0}, "top_k"), ({"top_k": True}, "top_k"), ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.01}, "top_p"), ({"top_p": float("nan")}, "top_p"), ({"min_p": 1.0}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"), ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"), ({"min_p": -0.1}, "min_p"),
        ({"temperature": 0.0, "top_p": 0.9, "min_p": 0.1}, "top_p, min_p: without effect"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_no_sampling(wrong, said):
    with pytest.raises(ValueError, match=said):
        Sampling(**{"temperature": 0.7, **wrong})
