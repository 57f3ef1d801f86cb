"""Of a path where there is not what was looked for, the nearest there is; of files in another form, the command."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.errors.misplaced import nearest_path, no_model_folder, not_json_lines, unreadable


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "models" / "support-8b").mkdir(parents=True)
    (tmp_path / "models" / "support-8b" / "config.json").write_text("{}")
    (tmp_path / "outputs.jsonl").write_text("{}")
    (tmp_path / "gate.yaml").write_text("version: 1")
    (tmp_path / "broken").symlink_to(tmp_path / "gone")
    return tmp_path


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("models/suport-8b", "; did you mean 'models/support-8b'?"),
        ("modles/suport-8b", "; did you mean 'models/support-8b'?"),
        ("gate.yml", "; did you mean 'gate.yaml'?"),
        ("gate", "; did you mean 'gate.yaml'?"),
        ("output.json", "; did you mean 'outputs.jsonl'?"),
        ("nothing.jsonl", ""),
        ("elsewhere/deep/gate.yaml", "; there is no folder 'elsewhere'"),
        ("models/support-8b", "; it is a folder, and a file is needed, such as 'config.json' in it"),
        ("gate.yaml", "; it is a file, in the folder '.'"),
        ("broken", "; it leads to no file"),
        ("a\0b", ""),
        ("x" * 5000, ""),
    ],
)
def test_the_nearest_path_is_named_part_by_part(folder, monkeypatch, written, said):
    monkeypatch.chdir(folder)
    assert nearest_path(Path(written)) == said


def test_only_what_could_be_meant_is_named(folder, monkeypatch):
    monkeypatch.chdir(folder)
    lines = lambda path: path.suffix == ".jsonl"  # noqa: E731
    (folder / "gate.jsonl").write_text("{}")
    assert nearest_path(Path("gate.yml"), lines) == "; did you mean 'gate.jsonl'?"
    assert nearest_path(Path("models/support-8b"), lines) == "; it is a folder, and a file is needed"
    (folder / "gate.jsonl").unlink()
    assert nearest_path(Path("gate.yml"), lines) == ""


def test_a_name_on_the_disk_that_would_hide_something_is_escaped(tmp_path):
    (tmp_path / "gate\u202e\x1b[2J.yaml").write_text("")
    said = nearest_path(tmp_path / "gate.yaml")
    assert "did you mean" in said
    assert said.isprintable()


@pytest.mark.parametrize("written", ["meta-llama/Llama-3.1-8B", "gpt2", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_a_name_of_the_hub_is_told_with_the_command_that_fetches_it(tmp_path, written):
    local = f"./{written.rpartition('/')[2]}"
    assert no_model_folder(written, tmp_path / written).endswith(f"hf download {written} --local-dir {local}")


@pytest.mark.parametrize("written", ["./models/suport-8b", "models/suport-8b", "models/support-8b/config.json"])
def test_a_misspelt_folder_is_none_of_the_hub(folder, written):
    said = no_model_folder(written, folder / written)
    assert "hf download" not in said
    assert "support-8b" in said


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("a.json", '[{"id": 1}, {"id": 2}]', 2),
        ("of three words.jsonl", '[\n  {"id": 1},\n  {"id": 2}\n]\n', 2),
        ("pretty.jsonl", '{\n  "id": 1\n}\n{\n  "id": 2\n}\n', 2),
        ("marked.jsonl", '\ufeff[{"id": 1}]', 1),
    ],
)
def test_the_command_makes_lines_of_an_array(tmp_path, monkeypatch, name, text, count):
    file = tmp_path / name
    file.write_text(text.removeprefix("\ufeff"))
    said = not_json_lines(file, text.encode().partition(b"\n")[0])
    assert "one object a line is needed: jq -c" in said
    if shutil.which("jq") is None:
        pytest.skip("no jq here to try the command with")
    subprocess.run(["sh", "-c", said.partition("needed: ")[2]], check=True)
    lines = file.with_suffix(".jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1, 2][:count]


@pytest.mark.parametrize(
    ("name", "text"), [("rows of mine.csv", "id,text\n1,one\n2,two\n"), ("a.TSV", "id\ttext\n1\tone\n2\ttwo\n")]
)
def test_the_command_makes_lines_of_a_table(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    said = not_json_lines(file, text.encode().partition(b"\n")[0])
    command = said.partition("needed: python ")[2]
    subprocess.run(["sh", "-c", f"{sys.executable} {command}"], check=True)
    lines = map(json.loads, file.with_suffix(".jsonl").read_text().splitlines())
    assert list(lines) == [{"id": "1", "text": "one"}, {"id": "2", "text": "two"}]


@pytest.mark.parametrize("line", [b'{"id": 1}\n', b"\n", b"", b"id: 1\n", b"\xef\xbb\xbf{}"])
def test_other_files_are_no_array(line):
    assert not_json_lines(Path("a.jsonl"), line) == ""


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_called_so(encoding):
    assert not_json_lines(Path("a.jsonl"), '{"id": 1}\n'.encode(encoding)) == "the file is UTF-16; save it as UTF-8"


def test_why_a_file_cannot_be_read_names_what_to_do(folder):
    file = folder / "gate.yaml"
    assert "chmod u+r" in unreadable(file, PermissionError(13, "Permission denied"))
    assert "did you mean" in unreadable(folder / "gate.yml", FileNotFoundError(2, "No such file"))
    assert "a file is needed" in unreadable(folder / "models", IsADirectoryError(21, "Is a directory"))
    assert unreadable(file, OSError(5, "Input/output error")).endswith("cannot be read (Input/output error)")
