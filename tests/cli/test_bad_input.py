"""What a user can get wrong, through the command line: what, where, what next; exit 64 (13, 12); nothing lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.adapter_folders import TWO, save_adapter
from tests.command_line import in_a_process, qualgate
from tests.gated_model import make_workspace, write_evalset
from tests.run.commands import rows


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return make_workspace(tmp_path_factory.mktemp("made"), cases=24).parent


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")

    return change


def truncated_weights(folder: Path) -> None:
    weights = folder / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def pickled_weights(folder: Path) -> None:
    (folder / "model" / "model.safetensors").rename(folder / "model" / "pytorch_model.bin")


def remote_code(folder: Path) -> None:
    config = folder / "model" / "config.json"
    body = json.loads(config.read_text()) | {"auto_map": {"AutoModelForCausalLM": "modeling.Evil"}}
    config.write_text(json.dumps(body))


def first_line(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / "echo.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(change(lines[0]) + b"".join(lines[1:]))

    return apply


def long_prompt(line: bytes) -> bytes:
    return json.dumps(json.loads(line) | {"prompt": "x" * 600}).encode() + b"\n"


def duplicate_id(folder: Path) -> None:
    path = folder / "echo.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines, lines[0]]))


def adapted(config: dict | None = None, parts: tuple[str, ...] = TWO, layers: tuple[int, ...] = (0, 1)):
    """The variant int2 with such an adapter."""

    def apply(folder: Path) -> None:
        save_adapter(folder / "lora", parts=parts, layers=layers, config=config)
        replaced("gate.yaml", "int2: {", "int2: {adapter: ./lora, ")(folder)

    return apply


MISTAKES = {
    "no weights": (lambda f: (f / "model" / "model.safetensors").unlink(), ["model"]),
    "truncated weights": (truncated_weights, ["model.safetensors"]),
    "pickle weights": (pickled_weights, ["safetensors"]),
    "remote code": (remote_code, ["auto_map"]),
    "no tokenizer": (lambda f: (f / "model" / "tokenizer.json").unlink(), ["tokenizer"]),
    "no such model folder": (replaced("gate.yaml", "./model", "./modle"), ["gate.yaml", "modle"]),
    "unknown key": (replaced("gate.yaml", "workers:", "wrokers:"), ["gate.yaml:", "wrokers", "workers"]),
    "misspelt metric": (replaced("gate.yaml", "exact_match", "exact_mach"), ["gate.yaml:", "exact_match"]),
    "key of a later version": (
        replaced("gate.yaml", "backend: local", "backend: local, devices: cuda"),
        ["gate.yaml:", "not in this version"],
    ),
    "an address for a model": (
        replaced("gate.yaml", "same: {model: ./model", "same: {model: 'http://127.0.0.1:1/v1'"),
        ["gate.yaml:4", "`endpoint`"],
    ),
    "a key in the file": (
        replaced(
            "gate.yaml",
            "same: {model: ./model, dtype: float32",
            "same: {model: m, endpoint: 'http://127.0.0.1:1/v1', api_key_env: sk-1",
        ),
        ["gate.yaml:4", "NAME of an environment variable"],
    ),
    "duplicate key": (replaced("gate.yaml", "version: 1", "version: 1\nversion: 1"), ["gate.yaml:2", "version"]),
    "threshold out of range": (replaced("gate.yaml", "max_drop: 0.10", "max_drop: 1.5"), ["gate.yaml:", "max_drop"]),
    "threshold not a number": (replaced("gate.yaml", "max_drop: 0.10", "max_drop: .nan"), ["gate.yaml:", "max_drop"]),
    "empty evalset": (lambda f: (f / "echo.jsonl").write_text(""), ["echo"]),
    "duplicate case id": (duplicate_id, ["echo.jsonl:25", "echo-000"]),
    "malformed line": (first_line(lambda line: line[:-3] + b"\n"), ["echo.jsonl:1"]),
    "invalid UTF-8": (first_line(lambda line: line.replace(b"echo-000", b"echo-\xff")), ["echo.jsonl:1"]),
    "adapter of rank 0": (adapted({"r": 0}), ["adapter_config.json", "the rank of", "is 0"]),
    "adapter with alpha NaN": (adapted({"lora_alpha": float("nan")}), ["adapter_config.json", "lora_alpha", "nan"]),
    "adapter of another base": (adapted(layers=(0, 1, 2)), ["lora", "model.layers.2", "another base"]),
    "adapter with layers missing": (adapted(layers=(0,)), ["adapter_model.safetensors", "lacks tensors"]),
    "adapter that is no LoRA": (adapted({"use_dora": True}), ["adapter_config.json", "DoRA", "not in this version"]),
    "prompt over the context": (first_line(long_prompt), ["echo-000", "512"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_stops_before_generation_with_exit_64_and_says_where(mistake, workspace):
    change, said = MISTAKES[mistake]
    change(workspace)
    done = qualgate("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.USAGE, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for word in said:
        assert word in done.stderr, done.stderr
    assert not (workspace / "qualgate.db").exists()


@pytest.mark.parametrize("call", [qualgate, pytest.param(in_a_process, marks=pytest.mark.proof)])
def test_a_model_whose_logits_are_not_numbers_ends_as_an_incomplete_run_and_never_as_an_answer(workspace, call):
    from safetensors.torch import load_file, save_file

    path = workspace / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, path, metadata={"format": "pt"})
    done = call("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.INFRASTRUCTURE, done.stdout + done.stderr
    assert "NaN" in done.stdout
    assert "Traceback" not in done.stderr
    assert rows(workspace, "select distinct status from units") == [("error",)]
    assert rows(workspace, "select count(*) from scores") == [(0,)]


def of_another_folder(file: str, change: Callable[[Path], object]) -> Callable[[Path], None]:
    """The variant `same` is a copy of the baseline's folder, but for one file."""

    def apply(folder: Path) -> None:
        shutil.copytree(folder / "model", folder / "other")
        change(folder / "other" / file)
        replaced("gate.yaml", "same: {model: ./model", "same: {model: ./other")(folder)

    return apply


def with_setting(**settings: object) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def calibrated_on(case: dict, change: Callable[[Path], object] = lambda folder: None) -> Callable[[Path], None]:
    """The variant `int2` is made with a calibration set of this one case."""

    def apply(folder: Path) -> None:
        (folder / "cal.yaml").write_text("name: cal\nversion: 1\nkind: calibration\n")
        (folder / "cal.jsonl").write_text(json.dumps({"id": "a", "answer": "x", **case}) + "\n")
        recipe = "{method: gptq, bits: 4, group_size: 32, calibration: ./cal.yaml}"
        replaced("gate.yaml", "{method: int2, group_size: 32}", recipe)(folder)
        change(folder)

    return apply


CHAT = {"messages": [{"role": "user", "content": "Hello?"}]}
REFUSED_BEFORE = {
    "another tokenizer": (
        of_another_folder("tokenizer_config.json", with_setting(pad_token="a")),
        ["variant same", "tokenizer", "copy tokenizer.json"],
    ),
    "another chat template": (
        of_another_folder("chat_template.jinja", lambda path: path.write_text("{{ messages }}")),
        ["variant same", "chat template", "copy chat_template.jinja"],
    ),
    "other stop tokens": (
        of_another_folder("generation_config.json", with_setting(eos_token_id=[7])),
        ["variant same", "stop tokens", "copy generation_config.json"],
    ),
    "a calibration set of chats for a model without a template": (
        calibrated_on(CHAT, lambda folder: (folder / "model" / "chat_template.jinja").unlink()),
        ["cal.yaml", "cal/a has messages", "no chat template"],
    ),
    "a calibration set that the template refuses": (
        calibrated_on(CHAT, lambda folder: (folder / "model" / "chat_template.jinja").write_text("{{ 1 / 0 }}")),
        ["cal.yaml", "cal/a", "fails on this case"],
    ),
    "a calibration set with a misspelt key": (
        calibrated_on({"message": CHAT["messages"]}),
        ["gate.yaml:5", "cal.jsonl:1", "did you mean `messages`"],
    ),
    "a calibration set without text": (calibrated_on({"prompt": ""}), ["cal.jsonl:1", "`prompt` must be a text"]),
    "a store that is none": (lambda f: (f / "qualgate.db").write_text("x" * 200), ["qualgate.db", "not a database"]),
    "a store in no folder": (replaced("gate.yaml", "///qualgate.db", "///runs/qualgate.db"), ["runs does not exist"]),
    "four arms that do not speculate": (
        replaced("gate.yaml", "int2: {", "spec: {model: ./model, arm: speculation}\n  int2: {arm: both, "),
        ["`four_arm`", "nobody drafts for them"],
    ),
}


@pytest.mark.parametrize("command", [("config", "check"), ("run",)])
@pytest.mark.parametrize("mistake", REFUSED_BEFORE)
def test_whatever_a_run_refuses_config_check_refuses_and_nothing_is_generated(command, mistake, workspace, monkeypatch):
    def never(*args: object) -> None:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("qualgate.run.run_jobs", never)
    change, said = REFUSED_BEFORE[mistake]
    if mistake.startswith("four arms"):
        replaced("gate.yaml", "same: {", "same: {arm: quantization, ")(workspace)
    change(workspace)
    done = qualgate(*command, "gate.yaml", cwd=workspace)
    assert (done.returncode, "Traceback" in done.stderr) == (Exit.USAGE, False), done.stdout + done.stderr
    for word in said:
        assert word in done.stderr, done.stderr


HEAVY = ("torch", "transformers", "numpy", "scipy", "sqlalchemy", "pandas", "streamlit", "qualgate.pipeline")


@pytest.mark.parametrize("command", [("config", "check"), ("run",), ("plan",)])
def test_a_misspelt_key_is_told_before_anything_heavy_is_imported(command, workspace):
    replaced("gate.yaml", "workers:", "wrokers:")(workspace)
    program = (
        "import atexit, sys; from qualgate.cli import main; sys.argv[0] = 'qualgate'; "
        f"atexit.register(lambda: print(*(name for name in {HEAVY} if name in sys.modules))); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command, "gate.yaml"], cwd=workspace, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (Exit.USAGE, ""), done.stderr
    assert "did you mean 'workers'?" in done.stderr


def test_an_answer_that_a_tampered_store_no_longer_vouches_for_is_an_integrity_failure(workspace):
    import sqlite3

    assert qualgate("run", "gate.yaml", cwd=workspace).returncode in (10, 12)
    with sqlite3.connect(workspace / "qualgate.db") as connection:
        connection.execute("update scores set value = 1, verdict = 1 where value = 0")
    done = qualgate("gate", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.INTEGRITY, done.stdout


def test_a_set_of_many_cases_is_checked_as_a_whole_and_every_fault_is_named(workspace):
    rows_ = [{"id": f"r{i}", "task": "t", "prompt": "x", "max_new_tokens": 0, "answer": "y"} for i in range(3)]
    write_evalset(workspace, rows_)
    done = qualgate("evalset", "check", "echo.yaml", cwd=workspace)
    assert done.returncode == Exit.USAGE
    for line in (1, 2, 3):
        assert f"echo.jsonl:{line}" in done.stderr


def test_metrics_without_their_library_name_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    done = qualgate("metrics", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "pip install 'qualgate[service]'" in done.stderr
