"""From a model's folder and forty cases of one's own to a verdict, by the commands that `init` itself prints."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest

from qualgate import evalsets
from qualgate.refmodel import PATH
from tests.command_line import qualgate


@pytest.mark.proof
def test_each_command_names_the_next_one_until_there_is_a_verdict(tmp_path):
    """As docs/getting-started.md has them, once qualgate is installed."""
    shutil.copytree(PATH, tmp_path / "my-model")
    cases = evalsets.load("json_extract", tmp_path).cases[:40]
    rows = [{"question": case.body["messages"][0]["content"], "output": case.body["answer"]} for case in cases]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    init = qualgate("init", "--model", "./my-model", "--cases", "mine.jsonl", cwd=tmp_path)
    assert init.returncode == 0, init.stderr
    printed = re.findall(r"^  \S.*? (plan|run) (gate\.yaml.*?) *#", init.stdout, re.MULTILINE)
    assert [name for name, _ in printed] == ["plan", "run", "run"], "with the installation five commands"
    ended = [qualgate(name, *shlex.split(words), cwd=tmp_path) for name, words in printed]
    assert [one.returncode for one in ended] == [12, 12, 0], "too few to be sure beforehand; a trial; nothing flipped"
    said = "(the critical rule is proven|no (answer|score) differs: .*)"
    assert re.search(rf"^int8 +APPROVE +{said}$", ended[-1].stdout, re.MULTILINE)


@pytest.mark.proof
def test_a_trial_shows_its_answers_and_the_metric_that_would_read_them(tmp_path):
    """The baseline answers in sentences, and `exact_match` was chosen."""
    cases = evalsets.load("grounded_qa", tmp_path).cases[:6]
    asked = [(case.body["messages"][0]["content"], case.body["answer"].rstrip(".").split()[-1]) for case in cases]
    lines = [json.dumps({"question": question, "answer": word}) + "\n" for question, word in asked]
    (tmp_path / "mine.jsonl").write_text("".join(lines))
    words = ("init", "--model", "reference", "--cases", "mine.jsonl", "--no-look", "--max-new-tokens", "64")
    assert qualgate(*words, cwd=tmp_path).returncode == 0
    shown = qualgate("run", "gate.yaml", "--limit", "5", cwd=tmp_path).stdout
    assert shown.count("exact_match wrong → wrong") == 5
    assert re.search(
        r"right on 0 of 5 cases by exact_match; `contains` would score [345] of 5", " ".join(shown.split())
    )
