"""What travels to a cluster, what is refused, and how a job says how its run ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import Exit, UsageError
from qualgate.pipeline.cluster import inside, travel
from qualgate.pipeline.cluster.inside import End, end_line, read_end
from qualgate.pipeline.cluster.travel import files_that_travel, lay_out
from qualgate.records.identity import own_version
from tests.gated_model import write_evalset

GATE = """\
version: 1
baseline: {model: /shared/models/support}
variants: {int8: {quantize: int8}, awq: {model: /shared/models/awq}}
evalsets: [./sets/ours.yaml, json_extract]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
store: postgresql://gate@db/gate
workers: {backend: ray, address: auto}
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    """A gate file's, with an evalset, and with a model, a store and a cache, which do not travel."""
    home = tmp_path / "gate"
    for name in ("sets", "model", "qualgate.artifacts"):
        (home / name).mkdir(parents=True)
        (home / name / "large.safetensors").write_bytes(b"0")
    (home / "qualgate.db").write_bytes(b"0")
    (home / "support.yaml").write_text("notes: of another\n")
    rows = [{"id": "a", "task": "t", "prompt": "say a", "max_new_tokens": 2, "answer": "a"}]
    write_evalset(home / "sets", rows, "ours")
    return home


def files(folder: Path, *changes: tuple[str, str]) -> set[str]:
    text = GATE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "gate.yaml").write_text(text)
    return set(files_that_travel(load_gate_file(folder / "gate.yaml", files=False)))


def test_the_gate_file_and_the_small_files_that_it_names_travel_and_nothing_else(folder, tmp_path):
    assert files(folder) == {"gate.yaml", "sets/ours.yaml", "sets/ours.jsonl"}
    lay_out(files_that_travel(load_gate_file(folder / "gate.yaml", files=False)), tmp_path / "there")
    assert (tmp_path / "there/sets/ours.jsonl").read_bytes() == (folder / "sets/ours.jsonl").read_bytes()
    assert files(folder, ("[./sets/ours.yaml, json_extract]", "[/shared/sets/ours.yaml]")) == {"gate.yaml"}


def test_a_word_that_happens_to_be_a_file_s_name_makes_it_no_file_that_travels(folder, monkeypatch):
    monkeypatch.setattr(travel, "load_set", lambda *_: None)  # simulated tools are of cases with turns alone
    for name in ("OPENAI_KEY", "id_rsa", ".env", "json_extract", "prices.jsonl", "team"):
        (folder / name).write_text("a secret\n")
    (folder / "compose.yaml").write_text("env_file: .env\nlabels: id_rsa\nprices: ./id_rsa\n")
    (folder / "prices.yaml").write_text("version: '1'\ncurrency: EUR\nprompt_token: 0.1\n")
    served = (
        "{endpoint: http://h/v1, model: team, api_key_env: OPENAI_KEY, extra_body: {labels: id_rsa, of: compose.yaml}}"
    )
    judge = "judge: {endpoint: http://h/v1, model: m, rubric: compose.yaml id_rsa, labels: labels.jsonl}"
    (folder / "labels.jsonl").touch()
    header = (folder / "sets/ours.yaml").read_text()
    (folder / "sets/ours.yaml").write_text(f"{header}simulation: tools.py\n")
    (folder / "sets/tools.py").write_text("class Tools: pass\n")
    assert files(
        folder, ("max_drop: 0.02}]", "max_drop: 0.02}, {metric: judge.win, max_drop: 0.05}]"),
        ("{model: /shared/models/awq}", served), ("json_extract]", f"json_extract]\nprices: prices.yaml\n{judge}"),
    ) == {"gate.yaml", "sets/ours.yaml", "sets/ours.jsonl", "sets/tools.py", "prices.yaml", "labels.jsonl"}  # fmt: skip


def test_a_gate_file_s_path_with_two_dots_is_as_good_as_another(folder):
    files(folder)
    gate = load_gate_file(folder / "sets" / ".." / "gate.yaml", files=False)
    assert set(files_that_travel(gate)) == {"gate.yaml", "sets/ours.yaml", "sets/ours.jsonl"}


def test_a_file_that_cannot_be_copied_is_the_user_s_to_mend(tmp_path):
    with pytest.raises(UsageError, match=r"none\.yaml: cannot be copied to travel"):
        lay_out({"none.yaml": tmp_path / "none.yaml"}, tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("{model: /shared/models/awq}", "{serve: 'vllm serve m --port {port} --config=./support.yaml'}"), "`serve` n"),
        (("{model: /shared/models/awq}", "{endpoint: http://h/v1, model: m, tokenizer: ./model}"), "folder ./model"),
        (("postgresql://gate@db/gate", "sqlite:///qualgate.db"), r"the store sqlite:///\S+ is a file of this machine"),
        (("/shared/models/support", "./model"), r"baseline reads \S+/gate/model, named by a path of this machine"),
        (("/shared/models/awq", "~/models/awq"), r"awq reads \S+/models/awq, named by a path of this machine"),
        (("{quantize: int8}", "{quantize: int8, speculation: {draft: {model: ./model}}}"), r"int8 reads \S+/model"),
        (("./sets/ours.yaml", "~/sets/ours.yaml"), "names ~/sets/ours.yaml: a home folder on the cluster is another"),
        ((", address: auto", ""), "write `workers: {backend: ray, address: auto}`"),
        (("workers: {backend: ray, address: auto}\n", ""), "write `workers: {backend: ray, address: auto}`"),
        (("json_extract]", "json_extract]\nserved_by: {engine: vllm, python: ./venv/bin/python}"), "`served_by` names"),
        (("json_extract]", "json_extract]\nfeedback: ../said.jsonl"), "names ../said.jsonl: it lies outside"),
        (("./sets/ours.yaml", "./sets/none.yaml"), "none.yaml"),
    ],
)  # fmt: skip
def test_what_the_cluster_cannot_see_is_refused(folder, change, said):
    (folder.parent / "said.jsonl").touch()
    with pytest.raises(UsageError, match=said):
        files(folder, change)


def test_files_that_are_large_together_are_refused_with_the_largest(folder, monkeypatch):
    monkeypatch.setattr(travel, "MOST_BYTES", 10)
    with pytest.raises(UsageError, match=r"3 files of .* would travel.*the largest is gate.yaml"):
        files(folder)


def test_an_end_is_read_from_the_last_line_that_carries_the_job_s_id():
    end = End(id="qualgate-1", exit=10, shown="BLOCK\n", report="{}")
    first, other = End(id="qualgate-1", exit=0, shown="", report=""), End(id="qualgate-2", exit=0, shown="", report="")
    log = "\n".join(
        (end_line(first), "words", end_line(end), end_line(other), "qualgate-job {", "qualgate-job []", "late")
    )
    assert read_end(log, "qualgate-1") == end
    assert read_end(log, "qualgate-3") is None
    assert read_end(end_line(End(id="a", exit=2, shown="", report="")), "a") is None


STUB = """\
import os, pathlib, signal, sys, time
reports = pathlib.Path("qualgate-reports")
reports.mkdir(exist_ok=True)
(reports / "r3.json").write_text("of another run at the same time")
print("the report", sys.argv[1:], flush=True)
if "--refuse" in sys.argv:
    sys.exit(13)
(reports / "r2.json").write_text('{"run": 2}')
print("report: qualgate-reports/r2.json\\nreport: qualgate-reports/r2.md", flush=True)
artifacts = pathlib.Path("qualgate.artifacts")
artifacts.mkdir(exist_ok=True)
with (artifacts / "ledger").open("a") as ledger:
    ledger.write("a claim\\n")
if "--leave" in sys.argv and os.fork() == 0:
    time.sleep(30)
    os._exit(0)
if "--die" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
if "--sleep" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    time.sleep(60)
sys.exit(10)
"""


@pytest.fixture
def stub(tmp_path, monkeypatch) -> dict[str, str]:
    """An environment in which a `qualgate` of this test's is run."""
    (tmp_path / "stub/qualgate").mkdir(parents=True)
    (tmp_path / "stub/qualgate/__init__.py").touch()
    (tmp_path / "stub/qualgate/__main__.py").write_text(STUB)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qualgate-reports").mkdir()
    (tmp_path / "qualgate-reports/r1.json").write_text("of an earlier run")
    return dict(os.environ)


def job(folder: object = "", *options: str, files: tuple[str, ...] = ("gate.yaml",), version: str = "") -> int:
    """Run it in this process."""
    words = ["job-1", version or own_version(), str(folder), json.dumps(files), "gate.yaml", *options]
    return inside.main(words)


def test_a_job_tells_the_run_s_exit_code_its_report_and_what_it_printed(stub, capfd):
    assert job("", "--blame") == Exit.BLOCK
    log = capfd.readouterr().out
    shown = (
        "the report ['run', 'gate.yaml', '--blame']\nreport: qualgate-reports/r2.json\nreport: qualgate-reports/r2.md\n"
    )
    assert log.startswith(shown)
    assert read_end(log, "job-1") == End(id="job-1", exit=10, shown=shown, report='{"run": 2}')


def test_a_run_that_was_killed_is_told_as_a_failure_of_the_infrastructure(stub, capfd):
    assert job("", "--die") == Exit.INFRASTRUCTURE
    assert read_end(capfd.readouterr().out, "job-1").exit == Exit.INFRASTRUCTURE


def test_a_job_that_is_stopped_tells_how_its_run_ended(stub, tmp_path):
    """Ray asks each process of a job to stop."""
    root = os.fspath(Path(inside.__file__).parents[3])
    program = [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}); "
               "from qualgate.pipeline.cluster.inside import main; sys.exit(main(sys.argv[1:]))"]  # fmt: skip
    with subprocess.Popen(
        [*program, "job-1", own_version(), "", "[]", "gate.yaml", "--sleep"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=stub,
    ) as job:
        assert job.stdout.readline().startswith("the report")
        time.sleep(0.2)  # its handler is set
        os.killpg(job.pid, signal.SIGTERM)
        log = job.stdout.read()
    assert job.returncode == Exit.TERMINATED
    assert read_end(log, "job-1").exit == Exit.TERMINATED


def test_with_a_shared_folder_the_same_files_run_in_the_same_place(stub, tmp_path, monkeypatch, capfd):
    (work := tmp_path / "work").mkdir()
    (work / "gate.yaml").write_text("version: 1\n")
    monkeypatch.chdir(work)
    shared = tmp_path / "shared"
    for _ in range(2):
        assert job(shared) == Exit.BLOCK
    [home] = folders(shared)
    assert (home / "gate.yaml").read_text() == "version: 1\n"
    assert json.loads((home / "qualgate-reports/r2.json").read_text()) == {"run": 2}
    (work / "gate.yaml").write_text("version: 1 # another\n")
    (work / "leftover").write_text("of an earlier job in the same working folder")
    job(shared)
    assert len(folders(shared)) == 2
    assert not list(shared.glob("*/leftover"))
    assert (shared / "qualgate.artifacts/ledger").read_text() == "a claim\n" * 3
    capfd.readouterr()
    shared.with_name("file").touch()
    assert job(shared.with_name("file")) == Exit.USAGE
    assert "give another --folder" in capfd.readouterr().out


def folders(shared: Path) -> list[Path]:
    """Those that are named by what travelled."""
    return [path for path in shared.iterdir() if path.name != "qualgate.artifacts"]


def test_leftovers_in_the_working_folder_change_nothing(stub, tmp_path, monkeypatch, capfd):
    (work := tmp_path / "work").mkdir()
    (work / "gate.yaml").write_text("version: 1\n")
    monkeypatch.chdir(work)
    job(tmp_path / "shared")
    (work / "qualgate.artifacts").mkdir()
    (work / "qualgate.artifacts/large").write_text("0" * 1000)
    job(tmp_path / "shared")
    [home] = folders(tmp_path / "shared")
    assert not (home / "qualgate.artifacts/large").exists()


def test_a_copy_that_is_cut_short_leaves_no_file(stub, tmp_path, monkeypatch, capfd):
    (work := tmp_path / "work").mkdir()
    (work / "gate.yaml").write_text("version: 1\n")
    monkeypatch.chdir(work)

    def full(source, target):
        Path(target).write_text("ver")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(inside.shutil, "copy2", full)
        assert job(tmp_path / "shared") == Exit.USAGE
    assert "No space left" in capfd.readouterr().out
    assert [path for path in (tmp_path / "shared").rglob("*") if path.is_file()] == []


def test_a_run_that_was_refused_has_no_report_of_another(stub, capfd):
    assert job("", "--refuse") == Exit.INFRASTRUCTURE
    assert read_end(capfd.readouterr().out, "job-1").report == ""


def test_a_process_that_holds_the_run_s_output_is_not_waited_for(stub, monkeypatch, capfd):
    monkeypatch.setattr(inside, "LATE_SECONDS", 0.2)
    began = time.monotonic()
    assert job("", "--leave") == Exit.BLOCK
    assert time.monotonic() - began < 15
    end = read_end(capfd.readouterr().out, "job-1")
    assert (end.exit, end.report) == (Exit.BLOCK, '{"run": 2}')


def test_another_version_on_the_cluster_is_refused_with_both_named(stub, capfd):
    assert job(version="0.0.9") == Exit.USAGE
    log = capfd.readouterr().out
    assert f"submitted by qualgate 0.0.9, and the cluster's head has {own_version()}" in log
    assert read_end(log, "job-1").exit == Exit.USAGE
