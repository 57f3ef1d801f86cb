"""What drafts hold beside weights, keys and values, counted before a run and held against the tensors of one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.engine.draft_workspace import CHANCE, LOGIT, draft_workspace
from qualgate.engine.head import OutputHead
from qualgate.engine.job import run_job
from qualgate.engine.ruling import Ruling
from qualgate.records import DRAFT_WORKSPACE, DraftSource, QuantizeRecipe, Sampling, Speculation
from tests.engine.jobs import INT8, arms_under, job
from tests.tiny_models import VOCABULARY

SELF = DraftSource(kind="quantize", quantize=QuantizeRecipe(method="mxfp4", group_size=32))
NGRAM = Speculation(draft=DraftSource(kind="ngram"), tokens=6)
COUNTED = [
    (NGRAM, [100], 4 * 6 * 100),
    (Speculation(draft=DraftSource(kind="suffix")), [100], 4 * 32 * 100),
    (Speculation(draft=SELF, tokens=5), [100, 100], 4 * 5 * 100),
    (Speculation(draft=replace(SELF, under=NGRAM), tokens=5), [100, 300, 0], 4 * 5 * 300),
    (Speculation(draft=DraftSource(kind="model", model="m"), tokens=1), [100, 900], 4 * 900),
    (Speculation(draft=DraftSource(kind="early_exit", layers=1), tokens=2), [100, 0], 4 * 2 * 100),
    (Speculation(draft=DraftSource(kind="head", layout="medusa"), tokens=5), [100, 0], 4 * 5 * 100),
    (Speculation(draft=SELF, tokens=5, rule="speculative_sampling"), [100, 80], 4 * 500 + 8 * (5 * 80 + 6 * 100)),
    (Speculation(draft=NGRAM.draft, tokens=2, rule="block_verification"), [100, 0], 4 * 200 + 8 * 3 * 100),
]  # fmt: skip


@pytest.mark.parametrize(("speculation", "holders", "found"), COUNTED)
def test_the_largest_pass_counts_and_what_a_rule_draws_from_stays_until_it_is_verified(speculation, holders, found):
    assert draft_workspace(speculation, holders) == found


@pytest.mark.parametrize("rule", ["keyed", "speculative_sampling"])
def test_a_run_s_own_tensors_of_one_sequence_are_as_many_as_were_counted(rule, tmp_path, monkeypatch):
    arm = arms_under("plain", tmp_path)
    under = Speculation(draft=replace(SELF, quantize=QuantizeRecipe(method="int2", group_size=32)), tokens=3)
    speculation = Speculation(draft=replace(SELF, under=under), tokens=4, rule=rule)
    drafted = arm("variant", INT8, speculation=speculation)
    work = job(drafted, "", count=8)
    if rule != "keyed":
        work = replace(work, prompts=tuple(replace(one, sampling=Sampling(temperature=0.8)) for one in work.prompts))
    rows, chances, below = {"target": 0, "draft": 0}, [0], [0]
    logits, said, proposed = OutputHead.logits, Ruling.said, Ruling.drafted
    mine = drafted.model.get_output_embeddings()

    def watched(self, states):
        found = logits(self, states)
        who = "target" if self.module is mine else "draft"
        rows[who] = max(rows[who], found.numel())
        return found

    def numbers(draft):
        return 0 if draft.drawn_from is None else draft.drawn_from.numel()

    def ruled(self, row, round, draft, given, steered=None):
        chances[0] = max(chances[0], given.numel() + numbers(draft))
        return said(self, row, round, draft, given, steered)

    def drew(self, row, round, offered, given, kind):
        below[0] = max(below[0], numbers(offered))
        return proposed(self, row, round, offered, given, kind)

    monkeypatch.setattr(OutputHead, "logits", watched)
    monkeypatch.setattr(Ruling, "said", ruled)
    monkeypatch.setattr(Ruling, "drafted", drew)
    for one in work.prompts:  # alone: a batch holds as much for each
        run_job(drafted, replace(work, prompts=(one,)))
    assert rows == {"target": 5 * VOCABULARY, "draft": 4 * VOCABULARY}
    counted = LOGIT * max(rows["target"] - VOCABULARY, rows["draft"]) + CHANCE * (chances[0] + below[0])
    assert drafted.footprint.facts[DRAFT_WORKSPACE] == counted
