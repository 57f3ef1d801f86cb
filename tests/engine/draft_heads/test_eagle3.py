"""EAGLE-3 heads as others publish them: what their layer computes, and that targets say their own by one."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.draft_heads.eagle3 import NEVER
from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.loading import load_head, read_head_tensors
from qualgate.engine.draft_heads.proposer import _Part
from qualgate.engine.draft_heads.rows import Row
from qualgate.records import DraftSource, Sampling, Speculation
from tests.engine.draft_heads.heads import eagle3_by_hand, save_eagle3
from tests.engine.jobs import INT4, loaded, the_same_whoever_drafts

LAYERS = 6


def test_the_layer_and_its_head_compute_what_the_authors_code_does(tmp_path):
    folder = read_head_folder(save_eagle3(tmp_path / "head"))
    tensors, head = read_head_tensors(folder), load_head(folder, LAYERS, torch.empty(0))
    assert (folder.layout, head.taps, head.reads) == ("eagle3", (2, 3, 3), 192)
    assert head.head is not None
    embedded, states = torch.randn(20, 64), torch.randn(20, 192)
    entered = functional.linear(states, tensors["fc.weight"].float())
    expected, drafted = eagle3_by_hand(tensors, folder.shape, embedded, entered)
    row, kept, found = Row(0, (), blocks=[1, 0]), KeysValues(), []
    for first, last in ((0, 13), (13, 14), (14, 20)):
        count = last - first
        x = head.layer.joined(embedded[first:last], head.layer.entered(states[first:last]))
        passed = batch([_Part(row, first, [0] * count, count, torch.empty(0))], 2)
        found.append(head.layer.forward(x, passed, kept, 1))
    assert torch.allclose(torch.cat(found), expected, atol=1e-4, rtol=1e-3)
    logits = head.head.logits(expected)
    assert logits.shape == (20, 260)
    ids = torch.arange(130) + tensors["d2t"]
    assert torch.allclose(logits[:, ids], drafted, atol=1e-4, rtol=1e-3)
    assert (logits == NEVER).sum(-1).tolist() == [130] * 20


@pytest.mark.parametrize(("recipe", "tokens"), [(INT4, 4), *(pytest.param(*one, marks=pytest.mark.proof) for one in
                         ((None, 4), (None, 0), (INT4, 0)))])  # fmt: skip
def test_no_bit_of_an_answer_depends_on_it(saved, tmp_path, recipe, tokens):
    spec = Speculation(draft=DraftSource(kind="head", head=str(save_eagle3(tmp_path / "head"))), tokens=tokens)
    plain, drafted = (loaded(saved(layers=LAYERS), tmp_path, "v", recipe, speculation=one) for one in (None, spec))
    the_same_whoever_drafts(plain, drafted, Sampling(), Sampling(temperature=0.8, top_p=0.95))
