"""Medusa's heads: each place of a draft is said of the same state, by a block of its own."""

from __future__ import annotations

import pytest
import torch

from qualgate.engine.draft_heads import medusa
from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import load_head, read_head_tensors
from qualgate.engine.draft_heads.medusa import MedusaHeads
from qualgate.engine.head import OutputHead
from qualgate.errors import UsageError
from qualgate.records import DraftSource, Speculation
from qualgate.speculation.propose import NO_DRAFT, Asked
from tests.engine.draft_heads.heads import save_random_head
from tests.engine.jobs import loaded


@pytest.fixture(scope="module")
def folder(tiny_arm, tmp_path_factory):
    return save_random_head(tmp_path_factory.mktemp("head") / "head", tiny_arm, layout="medusa", tokens=3)


def made(tiny_arm, folder, stops: frozenset[int] = frozenset()) -> MedusaHeads:
    head = load_head(read_head_folder(folder), 2)
    embed = tiny_arm.model.get_input_embeddings()
    found = head.proposer("heads", OutputHead(tiny_arm.model), embed, blocks=1, threads=1, stop_ids=stops)
    assert isinstance(found, MedusaHeads)
    return found


def test_each_place_is_said_of_the_state_before_the_last_token(tiny_arm, folder, monkeypatch):
    monkeypatch.setattr(medusa, "LOGITS", 260 * 3)  # a row at a time
    proposer, states = made(tiny_arm, folder), torch.randn(4, 64)
    proposer.read(0, (1, 2, 3), 0, torch.randn(3, 64))
    proposer.read(0, (1, 2, 3), 3, states)  # a token said, and three of a draft, of which one is accepted
    proposer.read(1, (9,), 0, states[:1])
    tensors = read_head_tensors(read_head_folder(folder))

    def expected(state: torch.Tensor) -> list[int]:
        found = []
        for place in range(3):
            weight, bias = (tensors[f"blocks.{place}.{name}"].float() for name in ("weight", "bias"))
            moved = state + torch.nn.functional.silu(weight @ state + bias)
            found.append(int(OutputHead(tiny_arm.model).logits(moved[None])[0].argmax()))
        return found

    first, second, third = proposer.propose(
        [Asked(0, (1, 2, 3), (4, 5, 6), 9), Asked(1, (9,), (4,), 2), Asked(2, (9,), (4,), 2)]
    )
    assert list(first.tokens) == expected(states[1])
    assert list(second.tokens) == expected(states[0])[:2]
    assert third == NO_DRAFT
    proposer.ended(0)
    assert proposer.propose([Asked(0, (1, 2, 3), (4, 5, 6), 9)]) == [NO_DRAFT]
    ending = made(tiny_arm, folder, frozenset({first.tokens[0]}))
    ending.read(0, (1, 2, 3), 3, states)
    assert ending.propose([Asked(0, (1, 2, 3), (4, 5, 6), 9)])[0].tokens == first.tokens[:1]


def test_logits_that_are_no_numbers_draft_nothing(tiny_arm, folder):
    proposer = made(tiny_arm, folder)
    proposer.read(0, (1,), 0, torch.full((1, 64), torch.nan))
    assert proposer.propose([Asked(0, (1,), (4,), 3)]) == [NO_DRAFT]
    assert proposer.broken == 1


def test_more_tokens_than_it_has_heads_are_refused(tiny_arm, folder, tmp_path):
    spec = Speculation(draft=DraftSource(kind="head", head=str(folder)), tokens=4)
    with pytest.raises(UsageError, match="says 3 at most"):
        loaded(tiny_arm.spec.model, tmp_path, "v", speculation=spec)
