"""A set names the file or folder with its simulated tools, which are part of what its cases are."""

from __future__ import annotations

import json
import os

import pytest

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.pipeline.score_files import score_files
from qualgate.records import Evalset
from qualgate.records.metrics import STATE
from qualgate.scoring import code, registry
from qualgate.scoring.tools.state import score_state

TOOLS = [{"name": "look", "parameters": {"type": "object", "properties": {}}}]
TURN = {"user": "Left?", "expected_calls": [{"name": "look", "arguments": {}}], "results": ["7"]}
ROW = {"id": "a", "max_new_tokens": 9, "tools": TOOLS, "turns": [TURN, TURN]}
SHOP = "class Shop:\n  def __init__(self, left=7):\n    self.left = left\n  def look(self):\n    return self.left\n"


def shop(folder, source=SHOP, named="tools.py", state=None, metrics=STATE):
    (folder / "shop.yaml").write_text(f"name: shop\nversion: 1\nmetrics: [{metrics}]\nsimulation: {named}\n")
    row = ROW | {"state": state or {"classes": ["Shop"]}}
    (folder / "shop.jsonl").write_text(json.dumps(row) + "\n")
    (folder / "tools.py").write_text(source)
    return folder / "shop.yaml"


def read(path) -> Evalset:
    found = evalsets.read(path)
    assert isinstance(found, Evalset)
    return found


def test_cases_are_others_when_the_tools_are(tmp_path):
    first, same = read(shop(tmp_path)), read(shop(tmp_path))
    other = read(shop(tmp_path, SHOP + "# changed\n"))
    assert first.simulation == (("tools.py", SHOP),)
    assert first.sha256 == same.sha256 != other.sha256
    assert first.cases[0].hash == same.cases[0].hash != other.cases[0].hash
    assert [case.body["recorded"] for case in first.cases] == [([[["look", {}]]], [[["look", {}]]])] * 2


def test_a_folder_is_its_modules_whose_classes_are_named_with_them(tmp_path):
    (tmp_path / "sim" / "sub").mkdir(parents=True)
    (tmp_path / "sim" / "sub" / "b.py").write_text("LEFT = 7\n")
    (tmp_path / "sim" / "a.py").write_text("from sub.b import LEFT\n" + SHOP.replace("=7", "=LEFT"))
    found = read(shop(tmp_path, named="sim", state={"classes": ["a.Shop"]}))
    assert [path for path, _ in found.simulation] == ["a.py", "sub/b.py"]
    if held := code.local_sandbox():
        twice = [{"name": "look", "arguments": {}}] * 2
        assert score_state(found.cases[0], found, twice, held)[STATE].verdict
    (fault,) = evalsets.check(shop(tmp_path, named="sim"))
    assert "no class 'Shop'; did you mean a.Shop?" in fault.message


def test_of_one_file_or_a_folder_with_one_a_class_is_named_with_its_module_or_without(tmp_path):
    (tmp_path / "sim").mkdir()
    (tmp_path / "sim" / "a.py").write_text("\ufeff" + SHOP, encoding="utf-8")  # as editors begin a file
    for named, state in (("sim", "a.Shop"), ("sim", "Shop"), ("tools.py", "tools.Shop"), ("tools.py", "Shop")):
        found = read(shop(tmp_path, named=named, state={"classes": [state]}))
        if held := code.local_sandbox():
            twice = [{"name": "look", "arguments": {}}] * 2
            assert score_state(found.cases[0], found, twice, held)[STATE].verdict


def test_links_to_themselves_pipes_and_pythons_own_names_are_refused(tmp_path):
    path = shop(tmp_path)
    (tmp_path / "tools.py").unlink()
    (tmp_path / "tools.py").symlink_to("tools.py")
    assert "a link that points to itself" in evalsets.check(path)[0].message
    (tmp_path / "tools.py").unlink()
    os.mkfifo(tmp_path / "tools.py")
    assert "not a Python file" in evalsets.check(path)[0].message
    (tmp_path / "tools.py").unlink()
    (tmp_path / "calendar.py").write_text(SHOP)
    [fault] = evalsets.check(shop(tmp_path, named="calendar.py"))
    assert "calendar is a module of the standard library" in fault.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"named": "tool.py"}, "does not exist"),
        ({"named": "../tools.py"}, "is outside the set's folder"),
        ({"named": "/etc/passwd"}, "is outside the set's folder"),
        ({"named": "shop.jsonl"}, "not a Python file"),
        ({"source": "class:"}, "is not valid Python"),
        ({"source": "x = 1\n" * 1_000_000}, "more than 200 files or 4,194,304 bytes"),
        ({"metrics": "turns.correct"}, "which is no metric of this set"),
    ],
)
def test_what_cannot_be_used_is_told_at_its_line(tmp_path, change, said):
    (fault,) = evalsets.check(shop(tmp_path, **change))
    assert fault.line == 4
    assert said in fault.message


def test_whole_transcripts_are_scored_from_a_file(tmp_path):
    shop(tmp_path)
    look, outputs = {"name": "look", "arguments": {}}, tmp_path / "outputs.jsonl"
    calls = [[[look], [look, look]], [[look], []]]
    outputs.write_text(
        "".join(json.dumps({"id": "a", "repeat": n, "calls": one}) + "\n" for n, one in enumerate(calls))
    )
    found = score_files(tmp_path / "shop.jsonl", outputs, registry.find("state", "compat"))
    if code.local_sandbox():
        assert [row.score.verdict for row in found.rows] == [True, False]
        assert [case.id for case, _ in found.judged] == ["a"]
    outputs.write_text(json.dumps({"id": "a", "text": "look()"}) + "\n")
    with pytest.raises(UsageError, match="a list of calls for each turn of the user's"):
        score_files(tmp_path / "shop.jsonl", outputs, registry.find("state", "compat"))
