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
    assert re.search(r"^int8 +APPROVE +the critical rule is proven$", ended[-1].stdout, re.MULTILINE)
