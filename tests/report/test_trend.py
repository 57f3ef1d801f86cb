"""A trend on the terminal and in JSON."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from qualgate.errors import Exit
from qualgate.pipeline.nights.trends import ArmTrend
from qualgate.report import plots
from qualgate.report.trend import print_trend, quarantine_line, trend_as_json
from qualgate.stats.trend import trend
from qualgate.store.database import open_store
from qualgate.store.queries import Flaky, Watched
from tests.command_line import qualgate
from tests.store.made import make_run

FLAKY = Flaky(arm="int4", evalset="support", case_id="c: 17", changed=3, pairs=9)


@pytest.fixture
def fallen() -> ArmTrend:
    values = (*[(1,) * 100] * 9, *[(0,) * 20 + (1,) * 80] * 3)
    days = range(1, 13)
    seen = Watched(
        arm="int4",
        metric="exact_match",
        run_ids=tuple(f"run-{day}" for day in days),
        began=tuple(f"2026-11-{day:02}T02:00:00Z" for day in days),
        means=tuple(sum(night) / 100 for night in values),
        values=values,
        weight=100,
        approved_by="Ana \x1b[31m",
        other_cases=False,
    )
    return ArmTrend(watched=seen, trend=trend(values, weight=100))


def test_a_fall_is_shown_with_its_size_and_nights_and_hostile_names_are_made_visible(fallen, capsys):
    print_trend([fallen], [FLAKY])
    shown = capsys.readouterr().out
    assert "int4 exact_match  fallen" in shown
    assert "100.0 → 80.0 %: █████████▁▁▁" in shown
    assert "11 nights against the run of 2026-11-01, approved by Ana" in shown
    assert "\x1b" not in shown
    assert "fallen: int4 exact_match by 20.0 points since 2026-11-10 (told 2026-11-10)" in shown
    assert "support/c: 17 int4: another answer on 3 of 9 nights" in shown
    assert quarantine_line(FLAKY) in shown


def test_a_picture_says_the_nights_in_words_and_marks_since_when_it_fell(fallen):
    seen = fallen.watched
    found = plots.nights(seen.means, [began[:10] for began in seen.began], [fall.began for fall in fallen.falls])
    assert found is not None
    assert "100 % on 2026-11-01" in found.html.replace("100.0", "100")
    assert "fallen since 2026-11-10" in found.html
    assert found.html.count('class="night"') == 11
    assert found.html.count('class="mark broken"') == 1
    ElementTree.fromstring(found.html)


def test_a_single_night_has_no_picture_and_nights_alike_are_in_the_middle_of_theirs():
    assert plots.nights([0.5], ["2026-11-01"], []) is None
    same = plots.nights([1.0, 1.0], ["<b>", "2026-11-02"], [])
    assert same is not None
    assert "<b>" not in same.html
    assert "no fall" in same.html


def test_a_line_for_the_gate_file_is_yaml_that_names_the_case():
    import yaml

    assert yaml.safe_load(quarantine_line(FLAKY)) == {
        "case": "c: 17", "evalset": "support", "owner": "WHO", "expires": "DATE",
        "reason": "another answer on 3 of 9 unchanged nights",
    }  # fmt: skip


def test_json_holds_every_night_and_is_json(fallen):
    found = json.loads(json.dumps(trend_as_json([fallen], [FLAKY]), allow_nan=False))
    [one] = found["trends"]
    assert len(one["nights"]) == 12
    assert one["nights"][0]["p"] is None
    assert one["nights"][9]["p"] < 1e-9
    assert one["falls"][0]["new"] is False
    assert found["flaky"][0]["changed"] == 3


def test_a_run_that_has_no_trend_is_told_with_why_and_one_that_is_not_there_refused(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        run_id = make_run(store, jobs=1)
    asked = ("trend", "--store", "sqlite:///qualgate.db", "--run")
    begun, unknown = qualgate(*asked, run_id, cwd=tmp_path), qualgate(*asked, "nope", cwd=tmp_path)
    assert (begun.returncode, unknown.returncode) == (Exit.APPROVE, Exit.USAGE)
    assert f"run {run_id} is no night that could be compared: it is running" in " ".join(begun.stderr.split())
    assert "nope" in unknown.stderr
