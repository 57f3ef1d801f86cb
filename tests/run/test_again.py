"""`qualgate again`: one case of a finished run, answered again by both arms."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from qualgate.errors import Exit
from qualgate.pipeline import again as answering
from qualgate.records import JobResult
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.run.commands import changed, rows
from tests.served.scripted import as_json, scripted, text_piece
from tests.served.server.serving import serving

CASE = "echo-003"
FLIPPED = "--variant", "int2"


def run_of(folder: Path) -> str:
    return rows(folder, "SELECT run_id FROM runs ORDER BY created_at DESC LIMIT 1")[0][0]


def again(folder: Path, *words: str, case: str = CASE):
    return qualgate("again", run_of(folder), case, *words, cwd=folder)


def body_of(done) -> dict:
    return json.loads(done.stdout)


def stored_ids(folder: Path, arm: str, case: str = CASE, repeat: int = 0) -> list[int]:
    query = f"SELECT token_ids FROM units WHERE arm = '{arm}' AND case_id = '{case}' AND repeat = {repeat}"
    return np.frombuffer(rows(folder, query)[0][0], dtype="<i4").tolist()


def ids(parting: dict, side: int) -> list[int]:
    """The token ids that are listed of one side."""
    return [row[side]["id"] for row in parting["rows"] if row[side]]


def first_difference(a: list[int], b: list[int]) -> int:
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def test_both_answers_are_the_stored_ones_and_are_shown_from_their_first_difference_on(finished):
    folder, _ = finished
    before = {file.name: file.read_bytes() for file in folder.glob("qualgate.db*") if file.is_file()}
    shown, done = again(folder, *FLIPPED), again(folder, *FLIPPED, "--json")
    assert (shown.returncode, done.returncode) == (0, 0), shown.stderr
    assert {file.name: file.read_bytes() for file in folder.glob("qualgate.db*") if file.is_file()} == before
    baseline, variant = (stored_ids(folder, arm) for arm in ("baseline", "int2"))
    place = first_difference(baseline, variant)
    body = body_of(done)
    assert (body["same"], body["exit"], body["changes"]) == (True, 0, [])
    assert [answer["parting"]["sizes"] for answer in body["answers"]] == [[len(baseline)] * 2, [len(variant)] * 2]
    assert [answer["stored"] for answer in body["answers"]] == [answer["now"] for answer in body["answers"]]
    parting = body["parting"]
    assert parting["position"] == place
    assert (ids(parting, 0), ids(parting, 1)) == (baseline[place:][:20], variant[place:][:20])
    assert body["scores"] == {"exact_match": [1.0, 0.0]}
    assert "stored score: exact_match right → wrong" in shown.stdout
    assert shown.stdout.count("the same as stored, token for token") == 2
    assert f"baseline and int2 differ from token {place} on" in shown.stdout
    assert re.search(rf"\n +{place}  {baseline[place]} \".*\" +{variant[place]} \"", shown.stdout), shown.stdout


def test_the_first_variant_is_the_default_and_its_answer_is_the_baselines(finished):
    folder, _ = finished
    done = again(folder)
    assert done.returncode == 0, done.stderr
    assert "baseline and same give the same answer" in done.stdout


@pytest.mark.parametrize("command", ["flips", "answers"])
def test_the_listed_answers_name_the_command_once_and_it_works_as_it_stands(finished, command):
    folder, _ = finished
    words = ["flips", run_of(folder), "int2"] if command == "flips" else ["answers", run_of(folder), "--arm", "int2"]
    listed = qualgate(*words, cwd=folder)
    [line] = [line for line in listed.stdout.splitlines() if "qualgate again" in line]
    program, *copied = shlex.split(line.partition(": ")[2])
    assert program == "qualgate"
    done = qualgate(*copied, "--json", cwd=folder)
    assert (done.returncode, body_of(done)["variant"]) == (0, "int2"), done.stderr


@pytest.fixture(scope="module")
def few(made, tmp_path_factory) -> Path:
    """A folder of its own, with a run of two of its cases: a store names the folders of its models."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("few"), dirs_exist_ok=True))
    keep_cases(folder, 2)
    qualgate("run", "gate.yaml", cwd=folder)
    return folder


@pytest.fixture
def model(few, tmp_path):
    """Its model's folder, which a test may spoil."""
    shutil.copytree(few / "model", tmp_path / "model")
    yield few / "model"
    shutil.rmtree(few / "model", ignore_errors=True)
    shutil.copytree(tmp_path / "model", few / "model")


def keep_cases(folder: Path, count: int) -> list[dict]:
    """The folder's evalset with its first cases alone."""
    cases = [json.loads(line) for line in (folder / "echo.jsonl").read_text().splitlines()][:count]
    write_evalset(folder, cases)
    return cases


def flip_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def add_a_space(file: Path) -> None:
    file.write_text(f"{file.read_text()} \n")


def swap_tokens(file: Path) -> None:
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(content))


def add_a_template(file: Path) -> None:
    file.write_text("{% for message in messages %}{{ message['content'] }}{% endfor %}")


@pytest.mark.parametrize(
    ("file", "change", "what"),
    [("model.safetensors", flip_bit, "weights"), ("config.json", add_a_space, "config"),
     ("tokenizer.json", swap_tokens, "tokenizer"), ("chat_template.jinja", add_a_template, "template")],
)  # fmt: skip
def test_a_folder_that_changed_is_named_and_nothing_is_generated(model, monkeypatch, file, change, what):
    change(model / file)
    monkeypatch.setattr(answering, "job_runner", None)  # whoever generates, fails
    shown, done = (again(model.parent, *FLIPPED, *more, case="echo-001") for more in ((), ("--json",)))
    assert (shown.returncode, done.returncode) == (Exit.UNDECIDED, Exit.UNDECIDED), shown.stderr
    body = body_of(done)
    assert [(change["arm"], change["what"]) for change in body["changes"]] == [("baseline", what), ("int2", what)]
    assert {change["where"] for change in body["changes"]} == {str(model)}
    assert all(change["stored"] != change["now"] for change in body["changes"])
    assert (body["answers"], body["parting"], body["same"]) == ([], None, None)
    assert f"int2: {what} changed since the run" in shown.stdout
    assert str(model) in shown.stdout
    assert "Nothing was generated" in shown.stdout


def test_a_missing_folder_is_named(model):
    shutil.rmtree(model)
    done = again(model.parent, case="echo-001")
    assert (done.returncode, str(model) in done.stderr) == (Exit.USAGE, True), done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((CASE, "--variant", "int3"), "has no variant 'int3'. It has: same, int2."),
        (("echo-0030",), "no case 'echo-0030' that both arms answered; did you mean 'echo-030'?"),
        ((CASE, "--evalset", "speech"), "no case 'echo-003' in evalset 'speech' that both arms answered; it is in ec"),
        ((CASE, "--repeat", "2"), "has no answer 2 to case 'echo-003'. Its answers: 0."),
    ],
)
def test_what_the_run_does_not_have_is_refused(finished, words, message):
    folder, _ = finished
    done = qualgate("again", run_of(folder), *words, cwd=folder)
    assert (done.returncode, message in done.stderr) == (Exit.USAGE, True), done.stderr


def test_an_unknown_run_is_refused_with_those_that_there_are(finished):
    folder, _ = finished
    done = qualgate("again", "20200101-000000-000000", CASE, cwd=folder)
    assert (done.returncode, run_of(folder) in done.stderr) == (Exit.USAGE, True), done.stderr


def test_of_two_evalsets_with_the_case_one_must_be_named(workspace):
    cases = keep_cases(workspace, 2)
    write_evalset(workspace, [{**case, "prompt": f"so {case['prompt']}"} for case in cases], name="other")
    changed(workspace, ("[./echo.yaml]", "[./echo.yaml, ./other.yaml]"))
    qualgate("run", "gate.yaml", cwd=workspace)
    refused = again(workspace, case="echo-000")
    assert refused.returncode == Exit.USAGE
    assert "in several evalsets: echo, other. Name one: --evalset echo" in refused.stderr
    done = again(workspace, "--evalset", "other", "--json", case="echo-000")
    assert (done.returncode, body_of(done)["evalset"]) == (0, "other"), done.stderr


def test_drawn_answers_of_any_repeat_are_drawn_again_also_where_times_decide(workspace):
    """The folder of the gate file is not needed: the stored file and arms are used."""
    keep_cases(workspace, 2)
    rule = "- {metric: latency.e2e, percentile: 50, max_ratio: 9}\n    - {metric: exact_match"
    drawn = "generation: {temperature: 1.0, seed: 3, repeats: 2}\ngate:"
    changed(workspace, ("- {metric: exact_match", rule), ("gate:", drawn))
    assert qualgate("run", "gate.yaml", cwd=workspace).returncode != Exit.USAGE
    (workspace / "gate.yaml").unlink()
    first, second = (stored_ids(workspace, "int2", "echo-001", repeat) for repeat in (0, 1))
    assert first != second
    done = again(workspace, *FLIPPED, "--repeat", "1", "--json", case="echo-001")
    body = body_of(done)
    assert (done.returncode, body["same"]) == (0, True), done.stderr
    place = body["parting"]["position"]
    assert ids(body["parting"], 1) == second[place:][:20]


@pytest.fixture
def altered(monkeypatch):
    """Answers of the variant that are not those of its model, by what a test does to each completion."""

    def alter(**fields) -> None:
        real = answering.job_runner

        def runner(*words):
            def run(jobs):
                for outcome in real(*words)(jobs):
                    assert isinstance(outcome, JobResult)
                    if outcome.arm != "baseline":
                        spoilt = tuple(replace(completion, **fields) for completion in outcome.completions)
                        outcome = replace(outcome, completions=spoilt)
                    yield outcome

            return run

        monkeypatch.setattr(answering, "job_runner", runner)

    return alter


def test_another_answer_is_shown_with_its_first_other_token_and_has_a_code_of_its_own(finished, altered):
    folder, _ = finished
    stored = stored_ids(folder, "int2")
    new = (stored[0], stored[1] ^ 1, *range(60, 90))
    altered(token_ids=new)
    shown, done = again(folder, *FLIPPED), again(folder, *FLIPPED, "--json")
    assert (shown.returncode, done.returncode) == (Exit.INTEGRITY, Exit.INTEGRITY)
    assert "baseline: the same as stored" in shown.stdout
    assert f"int2: differs from token 1 on: stored {stored[1]} " in shown.stdout
    assert f", now {new[1]} " in shown.stdout
    assert "No known reason" in shown.stdout
    body = body_of(done)
    assert [answer["same"] for answer in body["answers"]] == [True, False]
    parting = body["parting"]
    place = first_difference(stored_ids(folder, "baseline"), list(new))
    assert ids(parting, 1) == list(new[place : place + 20])
    assert parting["following"][1] == len(new) - place - 20
    assert f"… {len(new) - place - 20} more" in shown.stdout


def test_an_answer_of_another_engine_need_not_repeat_and_that_is_said(finished, altered, monkeypatch):
    folder, _ = finished
    altered(finish_reason="length")
    monkeypatch.setattr("qualgate.pipeline.run_key.engine_version", lambda device, arithmetic: "qualgate 9")
    done = again(folder, *FLIPPED)
    assert done.returncode == Exit.UNDECIDED, done.stdout
    assert "int2: the same text, ended by" in done.stdout
    assert done.stdout.count("and now it is 'qualgate 9'") == 2
    assert "No known reason" not in done.stdout


SERVED = "  served: {{endpoint: '{0}', model: support, tokenizer: ./model}}\nevalsets"


def test_a_served_arm_answers_again_and_that_it_need_not_is_said(workspace, tmp_path_factory):
    keep_cases(workspace, 2)
    advisory = "\n    - {metric: drift.kl_mean, max: 0.05, tier: advisory}"
    with serving(workspace / "model", "support", tmp_path_factory.mktemp("cache")) as (address, _):
        changed(workspace, ("evalsets", SERVED.format(address)), (advisory, ""))
        qualgate("run", "gate.yaml", cwd=workspace)
        done = again(workspace, "--variant", "served", "--json", case="echo-001")
        assert done.returncode == 0, done.stderr
    body = body_of(done)
    assert (body["same"], body["parting"]["unit"], body["parting"]["position"]) == (True, "token", None)
    assert [len(answer["doubts"]) for answer in body["answers"]] == [0, 1]
    gone = again(workspace, "--variant", "served", case="echo-001")
    assert (gone.returncode, f"({address}): " in gone.stderr) == (Exit.INFRASTRUCTURE, True), gone.stderr


TEXTS = """\
version: 1
baseline: {{endpoint: '{0}', model: m}}
variants: {{v: {{endpoint: '{1}', model: m}}}}
evalsets: [./echo.yaml]
generation: {{temperature: 0.5}}
gate: {{noise_floor: false, rules: [{{metric: exact_match, max_drop: 0.10}}]}}
store: sqlite:///qualgate.db
"""
HOSTILE = "\u202e\x1b[2J\x00\n::error::x"


def test_texts_of_servers_are_compared_word_for_word_and_escaped(workspace):
    keep_cases(workspace, 1)

    def say(server, text: str) -> None:
        usage = {"prompt_tokens": 4, "completion_tokens": 3}
        server.otherwise = lambda body: as_json({**text_piece(text, "stop"), "usage": usage})

    with scripted() as one, scripted() as two:
        say(one, "the cat sat")
        say(two, "the dog sat")
        (workspace / "gate.yaml").write_text(TEXTS.format(one.address, two.address))
        qualgate("run", "gate.yaml", cwd=workspace)
        same = again(workspace, case="echo-000")
        say(two, f"the {HOSTILE}")
        other, body = again(workspace, case="echo-000"), body_of(again(workspace, "--json", case="echo-000"))
    assert (same.returncode, other.returncode) == (0, Exit.UNDECIDED), same.stderr
    assert "v: the same as stored, word for word (5 words)" in same.stdout
    assert "baseline and v differ from word 2 on" in same.stdout
    assert same.stdout.count("may differ: its server draws tokens") == 2
    assert 'v: differs from word 2 on: stored "dog", now "' in other.stdout
    for hostile in ("\x1b", "\x00", "\u202e", "::error::"):
        assert hostile not in other.stdout
    assert "\\u202e" in other.stdout
    assert [answer["now"] for answer in body["answers"]] == ["the cat sat", f"the {HOSTILE}"]
