"""Every code block of README and docs is run or parsed, so that what a reader copies is what the program takes."""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import re
import shlex
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from qualgate import cli, evalsets
from qualgate.config import load_gate_file
from qualgate.config.nightly import load_nightly
from qualgate.config.prices import load_prices
from qualgate.documents import read_yaml
from qualgate.evalsets.own_rows import read_rows
from qualgate.intake.feedback import read_feedback
from qualgate.intake.preferences import read_labels
from qualgate.intake.score_rows import read_score_rows
from qualgate.records.identity import own_version
from tests.docs.blocks import ROOT, Block, all_blocks, blocks, commands, pages

ALL = all_blocks()
SHELL = ("sh",)
OTHERS = {
    "",  # `.`, by which a shell reads a file
    "createdb",
    "pg_dump",
    "pg_restore",
    "cd",
    "cp",
    "docker",
    "exit",
    "flock",
    "git",
    "glab",
    "lm_eval",
    "mail",
    "pip",
    "sh",
    "sqlite3",
    "echo",
    "ray",
}
PRICES = 'version: "1"\ncurrency: EUR\noutput_token: 0.000001\n'
BASE: dict[str, Any] = {
    "version": 1,
    "baseline": {"model": "reference"},
    "variants": {"int8": {"quantize": "int8"}},
    "evalsets": ["arithmetic", "tool_calls", "./support.yaml"],
    "gate": {"rules": [{"metric": "exact_match", "max_drop": 0.02}]},
}
ROLES = {"variants": {role: {"model": f"./{role}", "arm": role} for role in ("quantization", "speculation", "both")}}


def parametrized(*languages: str) -> Any:
    found = [block for block in ALL if block.language in languages]
    return pytest.mark.parametrize("block", found, ids=str)


def test_every_block_says_its_language_and_has_a_test():
    known = {*SHELL, "yaml", "json", "python", "ini", "crontab", "dockerfile", "text"}
    assert {block.language for block in ALL} <= known
    assert len(ALL) > 80


# -------------------------------------------------------------------------------------------------------- shell


@cache
def command_line() -> Any:
    return typer.main.get_command(cli.app)


def parsed(words: list[str], *, whole: bool = True) -> None:
    """By the real command line, as far as it goes before anything runs. Raises for what it does not know.

    whole=False: arguments may be missing, which the sentence around a command says or leaves open.
    """
    command = command_line()
    while below := getattr(command, "commands", None):
        if words[0] in ("--help", "--version"):
            return
        assert words[0] in below, f"qualgate has no command {words[0]!r}"
        command, words = below[words[0]], words[1:]
    if "--help" in words:
        return
    try:
        command.make_context(command.name, list(words))
    except typer.BadParameter as error:
        if whole or type(error).__name__ != "MissingParameter":
            raise


@parametrized(*SHELL)
def test_a_shell_block_is_shell_and_its_commands_exist(block: Block):
    checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    for words in commands(block.text):
        check_command(words)


def check_command(words: list[str]) -> None:
    while words and re.fullmatch(r"[A-Za-z_]+=\S*", words[0]):
        words = words[1:]
    if not words:
        return
    name = Path(words[0]).name
    if name == "qualgate":
        parsed(words[1:])
    elif name == "make":
        made = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(made)
    elif name.startswith("python") and words[1] == "-m":
        assert find_spec(words[2]) is not None, f"no module {words[2]}"
    else:
        assert name in OTHERS, f"{name!r}: say in this test what that is"


def test_commands_within_a_line_of_prose_exist():
    for page in pages():
        for span in re.findall(r"`(qualgate [a-z][^`]*)`", page.read_text(encoding="utf-8")):
            for words in commands(" ".join(span.replace("…", "x").split())):
                if words[:1] == ["qualgate"]:
                    parsed(words[1:], whole=False)


@pytest.mark.parametrize("page", [page for page in pages() if any(b.exit is not None for b in blocks(page))], ids=str)
def test_what_a_page_says_to_run_runs_and_exits_as_it_says(page: Path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        if block.exit is not None and block.language == "python":
            exec(compile(block.text, str(block), "exec"), {"__name__": "a_page"})
        elif block.exit is not None:
            for words in commands(block.text):
                monkeypatch.setattr(sys, "argv", words)
                with pytest.raises(SystemExit) as ended:
                    cli.main()
            assert ended.value.code == block.exit, block


# --------------------------------------------------------------------------------------------------------- YAML


@parametrized("yaml")
def test_a_yaml_block_is_what_it_looks_like(block: Block, tmp_path):
    value = yaml.safe_load(block.text)
    path = tmp_path / "block.yaml"
    path.write_text(block.text, encoding="utf-8")
    (tmp_path / "prices.yaml").write_text(PRICES)
    if "jobs" in value:
        check_github(value)
        return
    if "apiVersion" in value:
        check_kubernetes(value)
        return
    if "groups" in value:
        check_alerts(value)
        return
    if "scrape_configs" in value:
        assert ":9464" in value["scrape_configs"][0]["static_configs"][0]["targets"][0], "as the page serves them"
        return
    if "include" in value:
        template = yaml.safe_load((ROOT / ".gitlab/qualgate.gitlab-ci.yml").read_text(encoding="utf-8"))
        assert value["gate"]["extends"] in template
        assert value["gate"]["variables"].keys() <= template[".qualgate"]["variables"].keys()
        return
    assert read_yaml(path).faults == (), "YAML that readers disagree on"
    if "currency" in value:
        load_prices(path)
    elif "gates" in value:
        for one in value["gates"].values():
            (tmp_path / one["gate"]).parent.mkdir(exist_ok=True)
            (tmp_path / one["gate"]).write_text("version: 1\n")
        load_nightly(path)
    elif "name" in value:
        check_evalset_yaml(value)
    else:
        path.write_text(yaml.safe_dump(whole(value)), encoding="utf-8")
        load_gate_file(path, files=False)


def whole(part: dict[str, Any]) -> dict[str, Any]:
    """A gate file around what a page shows of one."""
    gate = {**BASE["gate"], **part.get("gate", {})}
    if "nel_policy" in gate:
        del gate["rules"]
    roles = ROLES if "four_arm" in part and "variants" not in part else {}
    return {**BASE, **roles, **part, "gate": gate} if "version" not in part else part


def check_github(value: dict[str, Any]) -> None:
    for step in [step for job in value["jobs"].values() for step in job["steps"] if "run" in step]:
        for words in commands(step["run"]):
            parsed(words[1:]) if words[0] == "qualgate" else None
    if "gate" not in value["jobs"]:
        return
    action = yaml.safe_load((ROOT / ".github/actions/qualgate/action.yml").read_text(encoding="utf-8"))
    ours = [step for step in value["jobs"]["gate"]["steps"] if "qualgate" in step["uses"]]
    assert [step["uses"] for step in ours] == [f"OWNER/qualgate/.github/actions/qualgate@v{own_version()}"]
    assert ours[0]["with"].keys() <= action["inputs"].keys()
    assert {name for name, one in action["inputs"].items() if one.get("required")} <= ours[0]["with"].keys()


def check_alerts(value: dict[str, Any]) -> None:
    """Each rests on metrics and labels that there are."""
    metrics_page = (ROOT / "docs/service.md").read_text(encoding="utf-8")
    for rule in value["groups"][0]["rules"]:
        named = re.findall(r"\bqualgate_\w+", rule["expr"])
        assert named
        assert all(f"`{name}`" in metrics_page for name in named), rule
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= {"gate", "nightly"}


def check_kubernetes(value: dict[str, Any]) -> None:
    """The shape that the cluster asks of these two kinds, as far as a mistake in a page would go."""
    assert (value["apiVersion"], value["kind"]) in {("apps/v1", "Deployment"), ("batch/v1", "Job")}
    spec = value["spec"]
    pod = spec["template"]["spec"]
    if value["kind"] == "Deployment":
        assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    else:
        assert pod["restartPolicy"] == "Never", "a verdict is no reason to try again"
        assert spec["backoffLimit"] == 0
    for container in pod["containers"]:
        assert container["image"].endswith(f":{own_version()}")
        assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in pod["volumes"]}
        shell = container["command"][:2] == ["sh", "-c"]
        text = container["command"][2] if shell else shlex.join(container["command"])
        assert set(re.findall(r"\$[({]?(QUALGATE_\w+|NODE)", text)) <= {one["name"] for one in container["env"]}
        found = list(commands(text))
        assert any("qualgate" in words for words in found)
        for words in found:
            check_command(words)


def check_evalset_yaml(value: dict[str, Any]) -> None:
    model = evalsets.CalibrationFile if value.get("kind") == "calibration" else evalsets.EvalsetFile
    model.model_validate(value)


# --------------------------------------------------------------------------------------------------- everything else


@parametrized("json")
def test_a_json_block_is_read_by_what_reads_such_lines(block: Block, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(block.text, encoding="utf-8")
    bodies = [json.loads(line) for line in block.text.splitlines()]
    if "metric" in bodies[0]:
        assert len(read_score_rows(path, "support").rows) == len(bodies)
    elif "level" in bodies[0]:
        assert all({"time", "message"} <= body.keys() for body in bodies)
    elif "corrected" in bodies[0]:
        assert len(read_feedback(path).events) == len(bodies)
    elif "preferred" in bodies[0]:
        assert len(read_labels(path)) == len(bodies)
    elif {"messages", "prompt", "turns"} & bodies[0].keys():
        before = [one for one in blocks(block.page) if one.line < block.line and one.language == "yaml"][-1]
        name = yaml.safe_load(before.text)["name"]
        (tmp_path / f"{name}.yaml").write_text(before.text, encoding="utf-8")
        path.rename(tmp_path / f"{name}.jsonl")
        for one in blocks(block.page):
            if one.language == "python" and one.file:
                (tmp_path / one.file).write_text(one.text, encoding="utf-8")
        assert evalsets.check(tmp_path / f"{name}.yaml") == ()
    elif "question" in bodies[0]:
        assert [len(one.cases) for one in read_rows(path, "own", chat=True).sets] == [len(bodies)]
    else:
        assert all({"id"} < body.keys() <= {"id", "text", "calls", "schema", "answer"} for body in bodies), (
            "say in this test what that is"
        )


@parametrized("python")
def test_a_python_block_compiles_and_what_it_imports_exists(block: Block):
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}"), alias.name


@parametrized("ini", "crontab")
def test_a_service_runs_a_command_that_exists(block: Block):
    if block.language == "ini":
        read = configparser.ConfigParser(interpolation=None)
        read.read_string(block.text)
        lines = [read[name]["execstart"] for name in read.sections() if "execstart" in read[name]]
    else:
        lines = [re.sub(r"^(\S+ ){5}", "", line).replace("flock -n .lock ", "") for line in block.text.splitlines()]
    for line in lines:
        for words in commands(line.strip()):
            check_command(words)


def test_the_nightly_service_tells_somebody_when_it_does_not_end_with_0():
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    told = re.findall(r"^OnFailure=([\w-]+@)%n\.service$", page, re.MULTILINE)
    assert told == ["qualgate-told@"]
    assert f"/etc/systemd/system/{told[0]}.service" in page, "the unit that it starts stands there as well"
    assert "SuccessExitStatus" not in page, "only 0 is a pass"


@parametrized("dockerfile")
def test_a_recipe_is_made_of_instructions_and_runs_as_nobody_special(block: Block):
    lines = [line for line in block.text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    named = [line.split()[0] for line in lines]
    assert set(named) <= {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}, "no ARG and no ENV: no secret"
    users = [line.split()[1] for line in lines if line.startswith("USER")]
    assert users == ["qualgate"]
    assert named.index("USER") < named.index("ENTRYPOINT")
