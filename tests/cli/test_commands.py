"""The command line's contract: exit codes, plain errors, and a help page that lists only what works."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import in_a_process, qualgate

COMMANDS = (
    "init", "demo", "run", "plan", "gate", "report", "runs", "answers", "flips", "diff", "again", "config", "evalset",
    "db", "dashboard", "label", "labels", "preferences",
    "doctor", "draft", "inspect", "quantize", "score", "rescore", "intake", "drift", "load",
    "compare", "submit", "status", "wait", "cancel", "nightly", "trend",
    "metrics", "people", "key", "audit", "attest", "verify",
)  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]


def test_the_exit_codes_are_those_of_the_contract():
    assert {code.name: code.value for code in Exit} == {
        "APPROVE": 0, "BLOCK": 10, "REVIEW": 11, "UNDECIDED": 12, "INFRASTRUCTURE": 13, "INTEGRITY": 14,
        "USAGE": 64, "INTERRUPTED": 130, "TERMINATED": 143,
    }  # fmt: skip


def test_help_lists_the_commands_and_the_exit_codes():
    shown = in_a_process("--help")
    assert shown.returncode == 0
    for code in Exit:
        assert f"{code.value}" in shown.stdout
    listed = re.findall(r"^  ([a-z]+)  ", shown.stdout[shown.stdout.index("Start here:") :], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    assert "Others:" not in shown.stdout
    assert [*listed[:3]] == ["init", "plan", "run"], "what most people need stands first"


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    shown = qualgate("--version")
    assert (shown.returncode, shown.stdout) == (0, f"qualgate {project['version']}\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_is_on_the_page_of_commands(command):
    shown = qualgate(command, "-h")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) > 3
    assert not re.search(r"--[a-z-]+ <(str|int|list|path)", shown.stdout), "values are TEXT, N and PATH"
    assert f"qualgate {command}" in (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("no-such-command",),
        ("report", "--format", "pdf"),
        ("gate", "--store", "mysql://nowhere/db"),
    ],
)
def test_a_mistake_is_one_plain_message_and_exit_64(arguments, tmp_path):
    done = qualgate(*arguments, cwd=tmp_path)
    assert done.returncode == Exit.USAGE, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
    assert list(tmp_path.iterdir()) == [], "a mistake leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("run", "gate.yaml", "--limt", "5"), "No such option: --limt. Did you mean --limit?"),
        (("db", "upgrade", "--stor=x"), "No such option: --stor. Did you mean --store?"),
        (("--vresion",), "No such option: --vresion. Did you mean --version?"),
        (("run", "gate.yaml", "--leas", "1"), "No such option: --leas"),  # a hidden one is suggested to nobody
        (("run", "gate.yaml", "--limit"), "Option '--limit' requires an argument."),
    ],
)
def test_a_misspelt_option_gets_the_nearest_name(arguments, told):
    done = qualgate(*arguments)
    assert (done.returncode, done.stderr.strip().splitlines()[-1]) == (Exit.USAGE, f"Error: {told}")


def test_who_would_train_a_head_is_told_what_to_use():
    done = qualgate("draft", "train", "reference", "--evalset", "arithmetic", "--out", "head")
    assert (done.returncode, done.stderr.count("\n")) == (Exit.USAGE, 1)
    assert "Train an EAGLE-3 head with `speculators`" in done.stderr


@pytest.mark.parametrize("command", [("config", "check"), ("plan",)])
@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("said.jsonl", '{"arm": "int8"}\n', "said.jsonl:1: `corrected` must be true or false"),
        ("nel.yaml", "benchmarks: {arithmetic: {}}\n", "nel.yaml:1: the nel policy requires arithmetic"),
    ],
)
def test_what_a_run_would_refuse_in_a_file_that_the_gate_file_names_is_found_before(tmp_path, command, file, text, why):
    rules = "nel_policy: nel.yaml" if file == "nel.yaml" else "rules: [{metric: exact_match, max_drop: 0.05}]"
    (tmp_path / file).write_text(text)
    (tmp_path / "gate.yaml").write_text(
        "version: 1\nbaseline: {model: reference}\nvariants: {int8: {quantize: int8}}\nevalsets: [arithmetic]\n"
        f"gate: {{{rules}}}\n" + ("feedback: said.jsonl\n" if file == "said.jsonl" else "")
    )
    done = qualgate(*command, "gate.yaml", cwd=tmp_path)
    assert (done.returncode, why in done.stderr) == (Exit.USAGE, True), done.stderr


def test_config_schema_and_metrics_are_json():
    assert json.loads(qualgate("config", "schema").stdout)["$schema"].endswith("draft-07/schema#")
    names = {metric["name"] for metric in json.loads(qualgate("config", "metrics", "--json").stdout)}
    assert {"exact_match", "tool_call.valid", "drift.kl_mean"} <= names


def test_doctor_finds_this_installation_whole():
    done = qualgate("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, findings
    assert findings["torch"]["state"] == "ready"
    assert findings["engine vllm"]["detail"]["counters"]["verifications"] == "vllm:spec_decode_num_drafts"


def test_evalset_list_names_the_families_those_in_other_languages_and_the_calibration_set():
    listed = {row["name"]: row for row in json.loads(qualgate("evalset", "list", "--json").stdout)}
    assert listed.pop("calibration")["cases"] == 266
    for name in (f"{family}_{code}" for family in ("tool_calls", "json_extract") for code in ("es", "zh", "ar", "hi")):
        assert listed.pop(name)["cases"] == 96
    assert listed.pop("safety_pairs")["cases"] == 120
    assert all(listed.pop(f"safety_pairs_{code}")["cases"] == 48 for code in ("es", "zh", "ar", "hi"))
    assert set(listed) == {"arithmetic", "json_extract", "tool_calls", "code", "transform", "reformat", "grounded_qa"}
    assert all(row["cases"] >= 400 for row in listed.values())
