"""The table of a GPU's figures: what is in its file whenever a command is cut off, and what the next makes of it."""

from __future__ import annotations

import json
import os

import pytest

from qualgate.errors import UsageError
from tests.benchmarks import gpu, gpu_parts, gpu_products
from tests.benchmarks.gpu_table import Part, fill

ABOUT = {"device": "a card", "torch": "2"}


class Clock:
    """Seconds that pass when a part runs."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def part(id, ran, clock, seconds=1.0, fails=False):
    def work(before):
        ran.append(id)
        clock.now += seconds
        if fails:
            raise RuntimeError("out of memory")
        return {"before": sorted(before)}

    return Part(id, work)


def test_what_time_does_not_allow_is_measured_by_the_next_command(tmp_path):
    ran, clock, file = [], Clock(), tmp_path / "gpu.json"
    parts = [part(id, ran, clock, 40) for id in "abcd"]
    first = fill(parts, file, ABOUT, seconds=60, clock=clock)
    assert (ran, first["left"]) == (["a", "b"], ["c", "d"])  # what was begun goes on to its end
    assert json.loads(file.read_text()) == first
    second = fill(parts, file, ABOUT, seconds=600, clock=clock)
    assert (ran, second["left"]) == (list("abcd"), [])
    assert second["figures"]["d"] == {"before": ["a", "b", "c"]}


def test_a_command_that_is_killed_loses_the_part_it_was_at_and_no_other(tmp_path):
    ran, clock, file = [], Clock(), tmp_path / "gpu.json"

    def killed(before):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill([part("a", ran, clock), Part("b", killed)], file, ABOUT, seconds=60, clock=clock)
    assert os.listdir(tmp_path) == ["gpu.json"]
    found = fill([part(id, ran, clock) for id in "ab"], file, ABOUT, seconds=60, clock=clock)
    assert (ran, found["left"]) == (["a", "b"], [])


def test_a_part_that_fails_says_why_lets_others_be_measured_and_is_tried_again(tmp_path):
    ran, clock, file = [], Clock(), tmp_path / "gpu.json"
    parts = [part("a", ran, clock, fails=True), part("b", ran, clock)]
    found = fill(parts, file, ABOUT, seconds=60, clock=clock)
    assert (found["failed"], found["left"]) == ({"a": "RuntimeError: out of memory"}, ["a"])
    again = fill([part("a", ran, clock), parts[1]], file, ABOUT, seconds=60, clock=clock)
    assert (ran, again["failed"], again["left"]) == (["a", "b", "a"], {}, [])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"about": 3, "figures": 3}', '{"about": {}, "figures": {}}'])
def test_figures_of_another_device_or_none_of_ours_are_left_as_they_are(tmp_path, text):
    file = tmp_path / "gpu.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"gpu\.json.*Move it away"):
        fill([], file, ABOUT, seconds=60, clock=Clock())
    assert file.read_text() == text


def passing(wrong=()):
    ids = [
        "check dense",
        "check norm",
        "check rotary",
        *(f"check paged {form}" for form in gpu_parts.FORMS),
    ]
    seconds = {"bfloat16": 4e-3, "fp8": 2e-3, "int8": 2e-3, "int4": 1e-3}
    paged = {f"paged {form}": {"seconds": [one], "copy": [1e12], "bytes": 3.2e9} for form, one in seconds.items()}
    return {
        **{id: [{"check": "bits", "passed": id not in wrong}] for id in ids}, **paged,
        "dense": {"ours": [1.1e-5], "torch": [1e-5]}, "rotary": {"ours": [2e-6], "torch": [1e-5]},
        "step int4": {"seconds": [1.5e-3], "launched": [4e-3]}, "step bf16": {"seconds": [5e-3]},
    }  # fmt: skip


def test_goals_follow_from_the_figures():
    rows = {row["id"]: row for row in gpu_parts.rows_of(passing(), {})}
    assert list(rows) == list(gpu_parts.GOALS)
    missed = {id for id, row in rows.items() if not row["met"]}
    assert missed == {"step_bf16"}  # 200 tokens a second
    assert round(rows["paged_bfloat16"]["measured"], 6) == 0.8


@pytest.mark.parametrize("id", ["check dense", "check paged int4"])
def test_where_a_check_does_not_hold_no_speed_is_one(id):
    assert {row["met"] for row in gpu_parts.rows_of(passing({id}), {})} == {False}
    failed = {key: value for key, value in passing().items() if key != id}
    assert {row["met"] for row in gpu_parts.rows_of(failed, {id: "RuntimeError"})} == {False}
    assert {row["met"] for row in gpu_parts.rows_of(failed, {})} == {None}  # not tried


def test_without_figures_every_row_is_there_and_none_is_met_or_missed():
    rows = gpu.goals({}, {})
    assert [row["id"] for row in rows] == [*gpu_products.GOALS, *gpu_parts.GOALS]
    assert {row["met"] for row in rows} == {None}
