"""Score files that are judged, found too short, and judged again when they hold more."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from qualgate.errors import UsageError
from qualgate.intake.row_evidence import KnownCases
from qualgate.intake.score_rows import ScoreRow, Scores
from qualgate.pipeline.from_files import UNKEPT, judge_scores
from qualgate.records import EarlyStop, Policy, Rule, Verdict
from tests.gate import planted
from tests.intake.score_files import exported, gated

FIXED = Policy(rules=(Rule(metric="exact_match", max_drop=0.05),))
EARLY = Policy(rules=FIXED.rules, stop=EarlyStop(seed=0))


def side(name: str, values: list[int], cluster: int = 0) -> Scores:
    """Case by case; cluster: cases of each, 0: every case by itself."""
    rows = [
        ScoreRow(
            id=f"c{case:04d}", metric="exact_match", value=float(value), case_hash=f"h{case}", scorer="s/1",
            cluster=f"k{case // cluster}" if cluster else None,
        )
        for case, value in enumerate(values)
    ]  # fmt: skip
    return Scores(source=name, rows=tuple(rows))


def judged(n: int, looks: Path | None, policy: Policy, *, lost: int = 0, cluster: int = 0, seed: int = 0) -> Verdict:
    """The first n cases of a list on which every fiftieth answer of the baseline is wrong. lost: of the variant's."""
    right = [int(case % 50 > 0) for case in range(2000)]
    after = list(right)
    for case in random.Random(seed).sample([case for case in range(2000) if right[case]], lost):
        after[case] = 0
    sides = {"baseline": side("a", right[:n], cluster), "variant": side("b", after[:n], cluster)}
    (verdict,) = judge_scores(sides, policy, KnownCases(default="set"), looks=looks)[1].verdicts
    return verdict


def test_the_fixed_test_decides_the_first_look_and_no_later_one(tmp_path):
    looks = tmp_path / "looks"
    first = judged(400, looks, FIXED)
    assert (first.word, UNKEPT in first.reasons) == ("approve", False)
    later = judged(500, looks, FIXED)
    assert (later.word, later.exit) == ("undecided", 12)
    assert "this list was judged before at 400 answers (test: fixed)" in later.reasons[0]
    assert judged(1000, looks, FIXED, lost=0).exit == 12
    assert judged(400, looks, FIXED) == first  # as it was then, whatever came after


def test_the_same_content_asked_again_is_no_new_look(tmp_path):
    looks = tmp_path / "looks"
    first = judged(400, looks, FIXED)
    kept = looks.read_bytes()
    assert [judged(400, looks, FIXED) for _ in range(5)] == [first] * 5
    assert looks.read_bytes() == kept
    assert list(tmp_path.iterdir()) == [looks]


def test_stop_early_may_be_asked_at_every_look_and_is_the_same_each_time(tmp_path):
    looks = tmp_path / "looks"
    said = {n: judged(n, looks, EARLY) for n in (40, 100, 200, 400, 800)}
    assert [verdict.word for verdict in said.values()][-1] == "approve"
    assert said[40].word == "undecided"
    assert said[800].comparisons[0].method.startswith("paired_betting")
    assert {n: judged(n, looks, EARLY) for n in said} == said
    assert judged(800, tmp_path / "other", EARLY, lost=400).word == "block"


OTHER_SEED = Policy(rules=FIXED.rules, stop=EarlyStop(seed=1))


@pytest.mark.parametrize("then", [40, 800])
@pytest.mark.parametrize(
    ("first", "later"),
    [(FIXED, EARLY), (EARLY, FIXED), (EARLY, OTHER_SEED)],
    ids=["early after fixed", "fixed after early", "another order of cases"],
)
def test_after_a_look_by_one_test_another_decides_nothing_and_the_first_goes_on(tmp_path, first, later, then):
    looks = tmp_path / "looks"
    before = judged(40, looks, first)
    again = judged(then, looks, later)
    assert (again.exit, f"(test: {first.test})" in again.reasons[0]) == (12, True)
    assert judged(40, looks, first) == before
    assert judged(800, looks, first).exit == (0 if first is EARLY else 12)


def test_without_memory_the_verdict_says_so_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert UNKEPT in judged(400, None, FIXED).reasons
    assert list(tmp_path.iterdir()) == []


def test_what_decides_nothing_is_no_look(tmp_path):
    looks = tmp_path / "looks"
    right = [1] * 400
    uneven = {"baseline": side("a", right), "variant": side("b", right[:399])}
    (verdict,) = judge_scores(uneven, FIXED, KnownCases(default="set"), looks=looks)[1].verdicts
    assert (verdict.exit, looks.exists()) == (13, False)


def others(n: int, looks: Path) -> None:
    """Cases of other names."""
    rows = tuple(ScoreRow(id=f"o{c}", metric="exact_match", value=1.0, case_hash="h", scorer="s/1") for c in range(n))
    sides = {name: Scores(source=name, rows=rows) for name in ("baseline", "variant")}
    judge_scores(sides, EARLY, KnownCases(default="set"), looks=looks)


@pytest.mark.parametrize(
    "ask",
    [
        lambda looks: judged(500, looks, EARLY, lost=300),
        lambda looks: judged(500, looks, EARLY, cluster=2),
        lambda looks: judged(300, looks, EARLY),
        lambda looks: others(500, looks),
    ],
    ids=["other answers", "other clusters", "fewer cases", "other cases"],
)
def test_a_looks_file_of_other_files_is_refused(tmp_path, ask):
    looks = tmp_path / "looks"
    judged(400, looks, EARLY)
    kept = looks.read_bytes()
    with pytest.raises(UsageError, match="belongs to other files"):
        ask(looks)
    assert looks.read_bytes() == kept


def test_a_damaged_looks_file_is_refused_and_left_as_it_is(tmp_path):
    looks = tmp_path / "looks"
    judged(60, looks, EARLY)
    whole = looks.read_bytes()
    for broken in (b"", b"{}", whole[:-1], whole + b" ", *(_flipped(whole, at) for at in range(0, len(whole), 37))):
        looks.write_bytes(broken)
        with pytest.raises(UsageError, match="cannot be read as a looks file"):
            judged(80, looks, EARLY)
        assert looks.read_bytes() == broken


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_whole_clusters_may_be_added_and_no_part_of_one(tmp_path):
    whole, part = tmp_path / "whole", tmp_path / "part"
    assert judged(80, whole, EARLY, cluster=4).word == "undecided"
    assert judged(2000, whole, EARLY, cluster=4).word == "approve"
    judged(402, part, EARLY, cluster=4)
    assert "grew after it had been looked at" in judged(800, part, EARLY, cluster=4).comparisons[0].reason


def test_a_rule_with_a_test_for_one_look_decides_at_the_first_alone(tmp_path):
    policy = Policy(rules=(Rule(metric="exact_match", max_relative_drop=0.1),), stop=EarlyStop(seed=0))
    looks = tmp_path / "looks"
    first, later = judged(400, looks, policy), judged(600, looks, policy)
    assert first.word == "approve"
    assert (later.word, "one look alone" in later.comparisons[0].reason) == ("undecided", True)


def test_the_command_keeps_looks_where_it_is_told_and_reports_the_same_bytes(tmp_path):
    files = exported(tmp_path, planted.run(n=120), "  stop: early")
    before = set(tmp_path.iterdir())
    one = gated(files, "--looks", str(tmp_path / "looks"))
    assert set(tmp_path.iterdir()) - before == {tmp_path / "looks"}
    assert gated(files, "--looks", str(tmp_path / "looks")).stdout == one.stdout
    assert json.loads(one.stdout)["verdicts"][0]["seen"]["look"] == 1
    assert UNKEPT in json.loads(gated(files).stdout)["verdicts"][0]["reasons"]
    (tmp_path / "looks").write_bytes(b"not this")
    assert isinstance(gated(files, "--looks", str(tmp_path / "looks")).exception, UsageError)


def test_the_folder_of_looks_is_made_and_where_it_cannot_be_the_option_is_named(tmp_path):
    files = exported(tmp_path, planted.run(n=120), "  stop: early")
    gated(files, "--looks", str(tmp_path / "new" / "looks"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["looks"]
    done = gated(files, "--looks", str(files[0] / "looks"))
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(f"--looks {files[0] / 'looks'}: cannot be written (")


@pytest.mark.parametrize("alpha", [0.2, 0.21, 0.45])
def test_a_lax_alpha_is_said_in_the_first_line(alpha):
    said = judged(400, None, Policy(rules=FIXED.rules, alpha=alpha)).reasons[0]
    assert said.startswith(f"at alpha {alpha:g}") == (alpha > 0.2)
