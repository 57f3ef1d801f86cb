"""Nights by the command line: a real run, its repetition, what is new, the digest, and the trend."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.command_line import qualgate

NIGHTLY = """\
version: 1
schedule: {at: "02:00", timezone: Europe/Berlin}
gates:
  echo: {gate: gate.yaml, models: ["models/*"]}
digest: {webhook: {url_env: QUALGATE_TEST_HOOK}}
"""


@pytest.fixture(scope="module")
def nights(made, tmp_path_factory):
    """Two nights of one model and a third after a second model came: what the command said each time."""
    folder = tmp_path_factory.mktemp("nights")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    (folder / "nightly.yaml").write_text(NIGHTLY)
    shutil.copytree(folder / "model", folder / "models" / "first")
    said = [qualgate("nightly", "nightly.yaml", "--plan", cwd=folder)]
    said += [qualgate("nightly", "nightly.yaml", "--json", cwd=folder)]
    said += [qualgate("nightly", "nightly.yaml", "--all", "--json", cwd=folder)]
    shutil.copytree(folder / "model", folder / "models" / "second")
    said += [qualgate("nightly", "nightly.yaml", cwd=folder)]
    return folder, said


def test_nights_run_repeat_and_judge_what_is_new(nights):
    folder, (plan, first, again, third) = nights
    assert plan.returncode == 0
    assert plan.stdout.startswith("run     echo: first  (its first night)")
    assert first.returncode == again.returncode == third.returncode, (first.stderr, third.stderr)
    one, two = json.loads(first.stdout), json.loads(again.stdout)
    assert [night["repeated"] for night in (*one["nights"], *two["nights"])] == [False, True]
    assert one["nights"][0]["run"] == two["nights"][0]["run"]
    assert [each["variant"] for each in two["nights"][0]["variants"]] == ["first"]
    assert re.search(r"^echo: second: \w+$", third.stdout, re.MULTILINE)
    assert "echo: first" not in third.stdout, "it was not due"
    assert "undelivered" in one
    assert "QUALGATE_TEST_HOOK is not set" in first.stderr
    assert "3 earlier digests" not in third.stdout
    assert third.stderr.count("not delivered: the digest of") == 3
    assert list(folder.glob("qualgate-reports/*"))


def test_a_trend_is_shown_of_a_run_of_the_store(nights):
    folder, _ = nights
    shown = qualgate("trend", "--store", "sqlite:///nightly.db", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"^second exact_match  no fall$", shown.stdout, re.MULTILINE)
    found = json.loads(qualgate("trend", "--store", "sqlite:///nightly.db", "--json", cwd=folder).stdout)
    assert {one["arm"] for one in found["trends"]} == {"baseline", "second"}
    assert all(len(one["nights"]) == 1 for one in found["trends"])
    assert found["flaky"] == []


def test_a_nightly_file_that_is_wrong_is_refused_before_anything(tmp_path):
    (tmp_path / "nightly.yaml").write_text(NIGHTLY)
    refused = qualgate("nightly", "nightly.yaml", cwd=tmp_path)
    assert refused.returncode == 64
    assert "nightly.yaml:4: no file" in refused.stderr
    assert sorted(one.name for one in tmp_path.iterdir()) == ["nightly.yaml"]
