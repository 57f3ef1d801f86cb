"""What drafts hold beside weights, keys and values, counted before a run and held against the tensors of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.engine.draft_workspace import draft_workspace
from qualgate.records import DraftSource, QuantizeRecipe, Speculation

SELF = DraftSource(kind="quantize", quantize=QuantizeRecipe(method="mxfp4", group_size=32))
NGRAM = Speculation(draft=DraftSource(kind="ngram"), tokens=6)
COUNTED = [
    (NGRAM, [100, 0], 4 * 6 * 100),
    (Speculation(draft=DraftSource(kind="suffix")), [100, 0], 4 * 32 * 100),
    (Speculation(draft=SELF, tokens=5), [100, 100], 4 * 5 * 100),
    (Speculation(draft=replace(SELF, under=NGRAM), tokens=5), [100, 300, 0], 4 * 5 * 300),
    (Speculation(draft=DraftSource(kind="model", model="m"), tokens=1), [100, 900], 4 * 900),
    (Speculation(draft=DraftSource(kind="head"), tokens=5), [100, 0], 4 * 5 * 100),
    (Speculation(draft=SELF, tokens=5, rule="speculative_sampling"), [100, 80], 4 * 500 + 8 * (5 * 80 + 6 * 100)),
    (Speculation(draft=NGRAM.draft, tokens=2, rule="block_verification"), [100, 0], 4 * 200 + 8 * 3 * 100),
]  # fmt: skip


@pytest.mark.parametrize(("speculation", "holders", "found"), COUNTED)
def test_the_largest_pass_counts_and_what_a_rule_draws_from_stays_until_it_is_verified(speculation, holders, found):
    assert draft_workspace(speculation, holders) == found
