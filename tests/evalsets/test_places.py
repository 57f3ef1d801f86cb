"""Where a set lies, and what is said of one that is not there."""

from __future__ import annotations

import pytest

from qualgate import evalsets
from qualgate.errors import UsageError
from tests.evalsets.test_evalsets import GOOD, messages


def test_missing_files_are_named(write, tmp_path):
    path = write([GOOD])
    (tmp_path / "mine.jsonl").unlink()
    assert messages(path)[0].endswith("no mine.jsonl beside it"), "the file that was read is not offered"
    (tmp_path / "mines.jsonl").write_text("{}")
    assert messages(path)[0].endswith("mines.jsonl'?")
    with pytest.raises(UsageError, match="no evalset at"):
        evalsets.load("./other.yaml", tmp_path)
    with pytest.raises(UsageError, match="did you mean 'arithmetic'"):
        evalsets.load("arithmetics", tmp_path)


def test_a_set_named_by_its_cases_or_its_folder_is_told_its_path(write, tmp_path):
    write([GOOD])
    with pytest.raises(UsageError, match=r"named by its path: \./mine\.yaml\)"):
        evalsets.load("mine.jsonl", tmp_path)
    with pytest.raises(UsageError, match=rf"named by its path: \./{tmp_path.name}/mine\.yaml\)"):
        evalsets.load(tmp_path.name, tmp_path.parent)
    with pytest.raises(UsageError, match=r"named by its path: \./own\.yaml\)"):
        evalsets.load("own", tmp_path)
