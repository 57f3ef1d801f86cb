"""Variants that speculate, end to end: the answers of their targets, their drafts in the store, their parts by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import make_workspace, write_evalset
from tests.run.commands import changed, rows, with_variants

VARIANTS = """\
variants:
  int8: {quantize: {method: int8, group_size: 32}}
  drafted: {speculation: {draft: {quantize: {method: int8, group_size: 32}}, tokens: 3}}
  cascade: {speculation: {draft: {quantize: {method: int4, group_size: 32}, under: {draft: ngram}}}}
  both: {quantize: {method: int8, group_size: 32}, speculation: {draft: suffix}}
"""
TARGETS = {"drafted": "baseline", "cascade": "baseline", "both": "int8"}


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("speculating")
    make_workspace(folder, cases=24, tokens=16)
    with_variants(folder, VARIANTS)
    changed(folder, ("[./echo.yaml]", "[./echo.yaml, ./reads.yaml]"), ("count: 1", "count: 1, devices: cpu"))
    asked = [{"id": f"read-{n}", "prompt": f"{n} is", "choices": [" odd", " even"], "answer": n % 2} for n in range(8)]
    write_evalset(folder, asked, "reads")
    (folder / "reads.yaml").write_text("name: reads\nversion: '1'\nmetrics: [multiple_choice.acc]\n")
    done = qualgate("run", "gate.yaml", "--json", cwd=folder)
    assert done.returncode == Exit.UNDECIDED, done.stderr
    return folder, json.loads(done.stdout)


def test_a_variant_that_speculates_says_what_its_target_says(ran):
    folder, _ = ran
    for name, target in TARGETS.items():
        ours, theirs = (
            rows(
                folder,
                f"select case_id, token_ids, text, finish_reason from units where arm = '{arm}' order by case_id",
            )
            for arm in (name, target)
        )
        assert len(ours) == 24 + 8
        assert ours == theirs, name
    moved = rows(folder, "select count(*) from units where arm in ('drafted', 'cascade') and first_divergence")
    assert moved == [(0,)]


def test_what_was_drafted_is_stored_of_those_that_speculate_and_of_no_other(ran):
    folder, _ = ran
    counted = dict(rows(folder, "select arm, sum(draft_proposed) from units group by arm"))
    assert counted["baseline"] is counted["int8"] is None
    assert min(counted[name] for name in ("drafted", "cascade")) > 0
    read = rows(folder, "select distinct coalesce(draft_proposed, 0) from units where evalset = 'reads'")
    assert read == [(0,)], "nothing is generated there, so nothing is drafted"
    started = dict(rows(folder, "select arm, sum(baseline_proposed) from units where evalset = 'echo' group by arm"))
    assert started["int8"] > 0
    assert {started[name] for name in ("baseline", *TARGETS)} == {0}


def test_the_report_holds_who_they_were_and_takes_none_for_a_copy(ran):
    _, body = ran
    identities = {arm["name"]: arm["identity"] for arm in body["arms"]}
    assert identities["drafted"]["weights"] == identities["baseline"]["weights"]
    assert len({identities[name]["speculation"] for name in identities}) == 4, "'' twice, and three that draft"
    facts = {arm["name"]: arm["footprint"]["facts"] for arm in body["arms"]}
    assert facts["drafted"]["memory.draft_weights"] == facts["int8"]["memory.weights"]
    assert "memory.draft_weights" not in facts["int8"]
    assert min(facts[name]["memory.draft_workspace"] for name in ("drafted", "both")) > 0
    assert facts["both"]["memory.draft_weights"] == 0
    reasons = [reason for verdict in body["verdicts"] for reason in verdict["reasons"]]
    assert not [reason for reason in reasons if "A/A" in reason]


def test_the_stored_run_decides_again_and_a_change_of_drafts_is_seen(ran):
    folder, body = ran
    again = qualgate("gate", "gate.yaml", "--json", cwd=folder)
    assert json.loads(again.stdout)["verdicts"] == body["verdicts"]
    changed(folder, ("tokens: 3", "tokens: 4"), file="other.yaml")
    other = qualgate("gate", "other.yaml", cwd=folder)
    assert other.returncode == Exit.UNDECIDED
    assert "drafted: speculation changed since run" in other.stdout
