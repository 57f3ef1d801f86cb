"""Score rows of an evalset that lies beside the gate file: which cases depend on each other, and which version counts,
is the set's to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qualgate.records import RunEvidence
from tests.gate.four import alike, evidence, with_units
from tests.gate.four_arm.test_verdict import CHEAPER
from tests.intake.score_files import body, external, gate_file, lay, said, written
from tests.intake.test_four_arm_files import GATE_FILE as FOR_FILES
from tests.intake.test_four_arm_files import judged

FOUR_ARMS = FOR_FILES.replace(external("code"), "./code.yaml")
Row = dict[str, Any]
Said = Callable[[Row], Row]


def passages(n: int = 300, size: int = 30) -> list[Row]:
    return [body(f"c{i}", f"question {i}", cluster=f"p{i // size}") for i in range(n)]


def _same(row: Row) -> Row:
    return row


def exit_of(
    folder: Path,
    sets: dict[str, list[Row]],
    baseline: Said = _same,
    variant: Said = _same,
    settings: str = "",
) -> tuple[int, str]:
    """(code, what is said) of two files with one right answer to each case. baseline, variant: change a side's rows."""
    hashes = {name: lay(folder, name, bodies) for name, bodies in sets.items()}
    gate = gate_file(folder, ", ".join(f"./{name}.yaml" for name in sets), "max_drop: 0.05", gate=settings)
    rows = [
        {"evalset": name, "id": id, "case_hash": hash, "scorer": "s/1"}
        for name, cases in hashes.items()
        for id, hash in cases.items()
    ]
    sides = written(folder / "a.jsonl", map(baseline, rows)), written(folder / "b.jsonl", map(variant, rows))
    return said((gate, *sides))


def test_cases_that_share_a_passage_stay_one_cluster_where_rows_leave_it_out(tmp_path):
    def with_cluster(row: Row) -> Row:
        return row | {"cluster": f"p{int(row['id'][1:]) // 30}"}

    few = "10 clusters of cases are too few to compare"
    for one in (_same, with_cluster):
        for other in (_same, with_cluster):
            code, told = exit_of(tmp_path, {"own": passages()}, one, other)
            assert (code, few in told) == (12, True), told
    assert exit_of(tmp_path, {"own": [body(f"c{i}", f"question {i}") for i in range(300)]})[0] == 0, "independent cases"


@pytest.mark.parametrize("side", ["baseline", "variant"])
@pytest.mark.parametrize(
    ("bodies", "own"), [(passages(), "'p0'"), ([body(f"c{i}", f"q{i}") for i in range(300)], "none")]
)
def test_a_row_that_names_another_cluster_than_its_case_is_refused_with_file_and_line(tmp_path, side, bodies, own):
    def another(row: Row) -> Row:
        return row | ({"cluster": "mine"} if row["id"] == "c7" else {})

    code, told = exit_of(tmp_path, {"own": bodies}, *((another, _same) if side == "baseline" else (_same, another)))
    assert code == 64
    assert f"{'a' if side == 'baseline' else 'b'}.jsonl:8: the `cluster` of 'c7' is 'mine'" in told, told
    assert f"in the evalset own that lies there it is {own}" in told
    assert "Leave `cluster` out" in told


def test_a_question_that_stands_in_two_evalsets_counts_once(tmp_path):
    """40 cases cannot prove a loss of 5 points absent; 80 independent ones can."""
    here = [body(f"a{i}", f"question {i}") for i in range(40)]
    there = [body(f"b{i}", f"question {i}") for i in range(40)]
    others = [body(f"b{i}", f"another question {i}") for i in range(40)]
    assert exit_of(tmp_path, {"own": here, "other": others})[0] == 0
    code, told = exit_of(tmp_path, {"own": here, "other": there})
    assert (code, "40 independent cases" in told) == (12, True), told


@pytest.mark.parametrize("settings", ["", "identity: ids, "])
def test_rows_of_another_version_of_the_set_are_stale_by_ids_too(tmp_path, settings):
    bodies = [body(f"c{i}", f"question {i}") for i in range(300)]

    def old(row: Row) -> Row:
        return row | {"cluster": "before", "case_hash": f"old {row['case_hash']}"}

    def silent(row: Row) -> Row:
        return row | {"case_hash": ""}

    for baseline, variant in ((old, old), (silent, old), (old, silent)):
        code, told = exit_of(tmp_path, {"own": bodies}, baseline, variant, settings)
        assert (code, "300 cases were scored in another version than the one that lies there" in told) == (12, True)
    assert exit_of(tmp_path, {"own": bodies}, silent, silent, settings)[0] == (0 if settings else 12)


def of_set(folder: Path, size: int) -> RunEvidence:
    """Four arms that answer an evalset of 100 cases, so many to a passage; of each passage no row says a word."""
    asked = [(f"c-{i:04d}", f"question {i}", {"cluster": f"p{i // size}"} if size > 1 else {}) for i in range(100)]
    hashes = lay(folder, "code", [body(id, question, **more) for id, question, more in asked])
    given = evidence(alike(100), CHEAPER)
    for arm in (given.baseline, *given.variants):
        given = with_units(given, arm.name, lambda unit: replace(unit, case_hash=hashes[unit.key.case_id]))
    return given


def test_four_files_have_the_clusters_of_their_set(tmp_path):
    assert judged(tmp_path, of_set(tmp_path, 1), gate=FOUR_ARMS)[0] == 0
    assert judged(tmp_path, of_set(tmp_path, 10), gate=FOUR_ARMS)[0] == 12
