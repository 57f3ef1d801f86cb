"""The GitHub action and the GitLab template: their shape, the commands they call, and the code they end with."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from qualgate.cli import app
from qualgate.report.formats import FORMATS

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / ".github/actions/qualgate/action.yml").read_text(encoding="utf-8"))
TEMPLATE = yaml.safe_load((ROOT / ".gitlab/qualgate.gitlab-ci.yml").read_text(encoding="utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}
STEP = STEPS["Verdict"]
INSTALLS = {"github": STEPS["Install"]["run"], "gitlab": "\n".join(TEMPLATE[".qualgate"]["before_script"])}
JOB = TEMPLATE[".qualgate"]
SCRIPTS = {"github": STEP["run"], "gitlab": "\n".join(JOB["script"])}

FAKE = """#!/bin/sh
echo "$@" >> calls.txt
case "$1" in
  report) mkdir -p "$(dirname "$5")"; echo '{"exit": 10}' > "$5"; exit "${REPORT_CODE:-0}" ;;
  *) for word in "$@"; do if [ "$word" = --warn-only ]; then exit 0; fi; done; exit "$CODE" ;;
esac
"""


def test_the_action_is_a_composite_of_the_keys_that_github_reads():
    assert set(ACTION) == {"name", "description", "inputs", "outputs", "runs"}
    assert set(ACTION["runs"]) == {"using", "steps"}
    assert ACTION["runs"]["using"] == "composite"
    assert ACTION["inputs"]["gate-file"]["required"] is True
    for one in ACTION["inputs"].values():
        assert {"description"} <= set(one) <= {"description", "required", "default", "deprecationMessage"}
        assert isinstance(one.get("default", ""), str), "GitHub hands every input over as text"
    for one in ACTION["outputs"].values():
        assert set(one) == {"description", "value"}
    assert ACTION["outputs"]["exit-code"]["value"] == f"${{{{ steps.{STEP['id']}.outputs.exit-code }}}}"


def test_each_step_of_the_action_is_our_script_or_an_action_of_githubs_own():
    for step in ACTION["runs"]["steps"]:
        assert set(step) <= {"name", "id", "if", "shell", "env", "run", "uses", "with", "working-directory"}
        assert all(isinstance(value, str) for value in step.get("env", {}).values())
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]), "GitHub's own, at a version"
        else:
            assert {"name", "shell", "run"} <= step.keys(), "a composite's run step needs its shell"
            assert "${{" not in step["run"], "an input in a script's text would be part of the script"
    used = re.findall(r"inputs\.([\w-]+)", json.dumps(ACTION["runs"]))
    assert set(used) == ACTION["inputs"].keys(), "every input is read, and no other"


def test_the_template_is_a_hidden_job_of_the_keys_that_gitlab_reads_and_so_are_its_reports():
    assert list(TEMPLATE) == [".qualgate"]
    assert set(JOB) <= {"image", "variables", "cache", "before_script", "script", "artifacts"}
    assert set(JOB["artifacts"]) <= {"when", "expose_as", "paths", "reports", "expire_in", "name"}
    assert all(isinstance(line, str) for line in (*JOB["before_script"], *JOB["script"]))
    assert all(isinstance(value, str) for value in JOB["variables"].values()), "GitLab refuses a boolean"
    reports = JOB["artifacts"]["reports"]
    assert JOB["artifacts"]["when"] == "always", "a blocked variant's reports are the ones that are read"
    assert set(reports) == {"junit", "codequality"}
    assert all(f"--out {path}" in SCRIPTS["gitlab"] for path in reports.values())


def command_line() -> dict[str, set[str]]:
    """Each command of ours with its options."""
    commands: Any = typer.main.get_command(app)
    return {
        name: {option for parameter in one.params for option in parameter.opts}
        for name, one in commands.commands.items()
    }


@pytest.mark.parametrize("host", SCRIPTS)
def test_every_command_and_option_called_is_one_of_ours(host: str):
    known = command_line()
    called = re.findall(r"^ *qualgate (\w+)(.*?)(?:\|\||;|$)", SCRIPTS[host], re.MULTILINE)
    assert len(called) >= 4
    for name, rest in called:
        assert set(re.findall(r" (--[\w-]+)", rest)) <= known[name]
        for form in re.findall(r"--format (\S+)", rest):
            assert form in FORMATS
    for command in ("run", "gate"):  # reached through a variable
        assert "--warn-only" in known[command]
        assert f"{command}" in SCRIPTS[host]


def called(host: str, script: str, folder: Path, program: str, text: str, **variables: str) -> tuple[int, list[str]]:
    """The script's exit code, with such a program first on the path, and the lines that this wrote to calls.txt."""
    path = folder / "bin" / program
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail"] if host == "github" else ["sh", "-e"]
    done = subprocess.run(
        [*shell, "-c", script], cwd=folder, check=False, capture_output=True, text=True,
        env={**os.environ, **variables, "PATH": f"{path.parent}:{variables.get('PATH', os.environ['PATH'])}"},
    )  # fmt: skip
    calls = folder / "calls.txt"
    return done.returncode, calls.read_text().splitlines() if calls.exists() else []


def ended(host: str, folder: Path, code: int, report_code: str = "0", **settings: str) -> tuple[int, list[str]]:
    """The script's exit code with a qualgate that ends with `code`, and the calls it made."""
    github = {"GATE_FILE": "my gate.yaml", "COMMAND": "run", "WARN_ONLY": "false", "REPORTS": "out"}
    gitlab = {name: str(value) for name, value in JOB["variables"].items()} | {"QUALGATE_GATE_FILE": "my gate.yaml"}
    prefix = "" if host == "github" else "QUALGATE_"
    ours = {prefix + name: value for name, value in settings.items()}
    told = {"CODE": str(code), "REPORT_CODE": report_code, "GITHUB_OUTPUT": str(folder / "output.txt")}
    variables = (github if host == "github" else gitlab) | ours | told
    return called(host, SCRIPTS[host], folder, "qualgate", FAKE, **variables)


@pytest.mark.parametrize("host", SCRIPTS)
@pytest.mark.parametrize("code", [0, 10, 64, 137])
@pytest.mark.parametrize("report_code", ["0", "13"])
def test_the_job_ends_with_the_verdicts_code_whatever_the_reports_did(host, code, report_code, tmp_path):
    found, calls = ended(host, tmp_path, code, report_code=report_code)
    assert found == code
    assert calls[0] == "run -- my gate.yaml"
    assert len(calls) == (5 if code in (0, 10, 13) else 1), "reports are made of verdicts, not of mistakes"


@pytest.mark.parametrize("host", SCRIPTS)
def test_warn_only_is_handed_to_the_command_and_lets_a_block_pass(host, tmp_path):
    found, calls = ended(host, tmp_path, 10, WARN_ONLY="true")
    assert (found, calls[0]) == (0, "run --warn-only -- my gate.yaml")
    if host == "github":
        assert (tmp_path / "output.txt").read_text() == "exit-code=10\n", "the true code, from the JSON report"


@pytest.mark.parametrize("host", SCRIPTS)
def test_the_reports_of_an_earlier_job_are_not_taken_for_this_ones(host, tmp_path):
    folder = tmp_path / ("out" if host == "github" else "qualgate-ci")
    folder.mkdir()
    for name in ("report.html", "report.json", "junit.xml", "qualgate.sarif", "code-quality.json"):
        (folder / name).write_text('{"exit": 0}')
    assert ended(host, tmp_path, 137) == (137, ["run -- my gate.yaml"])
    other = "code-quality.json" if host == "github" else "qualgate.sarif"
    assert [path.name for path in folder.iterdir()] == [other], "what is not ours stays"


def test_a_true_code_that_nobody_can_read_is_no_approval(tmp_path):
    (tmp_path / "out/report.json").mkdir(parents=True)  # so that none can be written there
    assert ended("github", tmp_path, 10, WARN_ONLY="true")[0] == 0
    assert (tmp_path / "output.txt").read_text() == "exit-code=13\n"


@pytest.mark.parametrize("host", SCRIPTS)
def test_a_command_that_is_neither_run_nor_gate_is_refused(host, tmp_path):
    assert ended(host, tmp_path, 0, COMMAND="dashboard; true") == (64, [])


@pytest.mark.parametrize("host", SCRIPTS)
@pytest.mark.parametrize(
    "name", ["--help", "$(touch owned)", "`touch owned`", "a; touch owned #", '"; touch owned; "', "*"]
)
def test_a_gate_files_name_is_only_ever_a_name(host, name, tmp_path):
    found, calls = ended(host, tmp_path, 10, GATE_FILE=name)
    assert found == 10
    assert calls[0] == f"run -- {name}"
    assert len(calls) == 5
    assert all(call.endswith(f" -- {name}") for call in calls)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("command", ["run", "gate", "report"])
def test_a_gate_file_named_like_an_option_is_a_file_to_every_command(command):
    done = CliRunner().invoke(app, [command, "--", "--help"])
    assert done.exit_code != 0


def installed(host: str, folder: Path, **settings: str) -> list[str]:
    """What pip is asked by the step that installs, in a repository that is not ours."""
    inputs = {name: one.get("default", "") for name, one in ACTION["inputs"].items()}
    github = {"QUALGATE_VERSION": inputs["version"], "TORCH_INDEX": inputs["torch-index"]}
    gitlab = {name: str(value) for name, value in JOB["variables"].items()}
    variables = (github if host == "github" else gitlab) | settings
    place = "/actions/qualgate/v0.2.0/.github/actions/qualgate"
    program = '#!/bin/sh\nfor word in "$@"; do echo "$word" >> calls.txt; done\n'
    code, calls = called(host, INSTALLS[host], folder, "python", program, GITHUB_ACTION_PATH=place, **variables)
    assert code == 0
    return calls


PIP = ["-m", "pip", "install", "--disable-pip-version-check"]
CPU = ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]


def test_the_action_installs_the_ref_that_it_was_called_by(tmp_path):
    own = "/actions/qualgate/v0.2.0/.github/actions/qualgate/../../.."
    assert installed("github", tmp_path) == [*PIP, *CPU, "--constraint", f"{own}/constraints.txt", "--", own]
    here = ROOT / ".github/actions/qualgate/../../.."
    assert {"pyproject.toml", "constraints.txt"} <= {path.name for path in here.iterdir()}


@pytest.mark.parametrize(("program", "ends"), [("qualgate", 0), ("another", 64)])
def test_the_template_never_asks_an_index_for_qualgate_and_ends_where_the_image_has_none(tmp_path, program, ends):
    variables = {name: str(value) for name, value in JOB["variables"].items()}
    code, calls = called("gitlab", INSTALLS["gitlab"], tmp_path, program, "", **variables, PATH="/usr/bin:/bin")
    assert (code, calls) == (ends, [])


@pytest.mark.parametrize("host", INSTALLS)
@pytest.mark.parametrize("asked", ["--help", "$(touch owned)", "a; touch owned", "git+https://host/group/qualgate@v9"])
def test_what_is_installed_is_only_ever_one_requirement(host, asked, tmp_path):
    none = {"TORCH_INDEX": "", "QUALGATE_TORCH_INDEX": ""}
    assert installed(host, tmp_path, QUALGATE_VERSION=asked, **none) == [*PIP, "--", asked]
    assert not (tmp_path / "owned").exists()


def test_the_reports_are_uploaded_whatever_the_verdict_and_without_a_say_in_it():
    names = [step["name"] for step in ACTION["runs"]["steps"]]
    assert names[-2:] == ["Verdict", "Upload"]
    assert STEPS["Upload"]["if"].startswith("always()")
    assert "continue-on-error" not in json.dumps(ACTION), "else a block would pass"
    assert STEPS["Upload"]["with"]["path"] == "${{ inputs.reports }}"


def test_nothing_of_either_template_is_taken_from_the_users_checkout():
    for script in (*INSTALLS.values(), *SCRIPTS.values()):
        assert "./" not in script.replace("/../../..", "")
