"""Evalsets as people write them: every fault by file and line."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate import evalsets
from qualgate.errors import UsageError
from qualgate.records.identity import case_hash
from qualgate.scoring import score
from tests.evalsets.tables import rows_of

GOOD = {"id": "a", "prompt": "2 + 2 =", "answer": "4", "max_new_tokens": 8}
TOOL = {"name": "book", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
CALLS = {
    "id": "t",
    "messages": [{"role": "user", "content": "Book 2."}],
    "max_new_tokens": 8,
    "tools": [TOOL],
    "expected_calls": [{"name": "book", "arguments": {"n": 2}}],
}
SCHEMA = {**GOOD, "schema": {"type": "object"}}


def messages(path: Path) -> list[str]:
    return [f"{fault.path.name}:{fault.line}: {fault.message}" for fault in evalsets.check(path)]


def test_a_good_set_is_read_whole(write, tmp_path):
    header = "metrics: [exact_match, numeric, json.valid]\nnormalizers: [nfc, strip]\nlenient: [code_fence]"
    path = write(
        [GOOD, {**GOOD, "id": "b", "prompt": "1 + 1 =", "tags": ["x"], "cluster": "c", "task": "sums"}], header
    )
    found = evalsets.load("./mine.yaml", tmp_path)
    assert evalsets.check(path) == ()
    assert (found.name, found.version, found.metrics) == ("mine", "1", ("exact_match", "numeric", "json.valid"))
    assert (found.normalizers, found.lenient) == (("nfc", "strip"), ("code_fence",))
    assert found.sha256 == hashlib.sha256((tmp_path / "mine.jsonl").read_bytes()).hexdigest()
    one, two = found.cases
    assert (one.id, one.task, one.tags, one.cluster, one.max_new_tokens) == ("a", "mine", (), None, 8)
    assert (two.task, two.tags, two.cluster) == ("sums", ("x",), "c")
    assert one.hash == case_hash(GOOD)


def test_a_reference_that_normalizes_to_nothing_is_refused(write):
    cases = [{**GOOD, "id": "a", "answer": "?"}, {**GOOD, "id": "b", "answer": "x?"}, {**GOOD, "id": "c", "answer": ""}]
    path = write(cases, "metrics: [exact_match]\nnormalizers: [strip_punctuation]")
    said = "so an answer that says nothing would be right"
    assert messages(path) == [
        f"mine.jsonl:1: `answer` '?' is empty after the set's normalizers, {said}",
        f"mine.jsonl:3: `answer` '' is empty, {said}",
    ]


def test_content_changes_with_whatever_changes_a_scores_meaning_and_with_nothing_else(write, tmp_path):
    write([GOOD])
    found = evalsets.load("./mine.yaml", tmp_path)
    assert replace(found, path="elsewhere", description="other words").content == found.content
    for field, value in (
        ("name", "x"), ("version", "2"), ("sha256", "0" * 64), ("metrics", ("numeric",)), ("lenient", ("code_fence",)),
        ("normalizers", ("nfc",)),
    ):  # fmt: skip
        assert replace(found, **{field: value}).content != found.content


def test_the_shipped_sets_are_fine_and_read_at_once():
    evalsets.load(evalsets.shipped()[0], Path())  # imports
    start = time.process_time()
    sets = [evalsets.load(name, Path("/nonexistent")) for name in evalsets.shipped()]
    elapsed = time.process_time() - start
    assert {"arithmetic", "json_extract", "tool_calls"} <= {found.name for found in sets}
    cases = sum(len(found.cases) for found in sets)
    assert elapsed < 20 * cases / 2800, f"{cases} cases in {elapsed:.2f} s"  # a collapse, not the goal


@pytest.mark.parametrize(("header", "line", "message"), rows_of("headers"))
def test_a_wrong_header_is_named_with_its_line(write, header, line, message):
    assert any(
        found.startswith(f"mine.yaml:{line}: ") and message in found for found in messages(write([GOOD], header))
    )


FAULTS = rows_of("cases")
FAULTS.append(["json.schema", [], {"schema": {"enum": list(range(20_000))}}, "more than 10,000 nodes"])


@pytest.mark.parametrize(("metric", "lost", "gained", "message"), FAULTS, ids=[row[-1][:40] for row in FAULTS])
def test_a_wrong_case_is_named_with_its_line(write, metric, lost, gained, message):
    good = {"exact_match": GOOD, "numeric": GOOD, "json.schema": SCHEMA, "tool_call.valid": CALLS}[metric]
    wrong = {key: value for key, value in good.items() if key not in lost} | gained
    (found,) = messages(write([{**good, "id": "first"}, wrong], f"metrics: [{metric}]"))
    assert found.startswith("mine.jsonl:2: ")
    assert message in found


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not a JSON object: Expecting"),
        (b"[1]", "not a JSON object"),
        (b"", "an empty line"),
        (b'{"id": "b", "id": "c"}', "the key 'id' twice"),
        (b'{"id": NaN}', "NaN is not JSON"),
        (b'{"id": 1e999}', "range of a double"),
        (b'{"id": "\\ud800"}', "half a character"),
        (b'{"id": "\xff"}', "not valid UTF-8 at byte 9"),
        (b'{"id": "\\u0000"}', "NUL"),
        (b'{"id": ' + b"[" * 100 + b"]" * 100 + b"}", "more than 64 levels"),
        (b'{"id": "' + b"x" * 9_000_000 + b'"}', "more than 8 MiB"),
    ],
)
def test_a_line_that_is_no_case_is_named(write, line, message):
    raw = json.dumps(GOOD).encode()
    path = write(raw + b"\n" + line + b"\n" + json.dumps({**GOOD, "id": "z", "prompt": "1 + 1 ="}).encode() + b"\n")
    (found,) = messages(path)
    assert found.startswith("mine.jsonl:2: ")
    assert message in found


def test_what_editors_and_shells_add_to_the_cases_is_no_fault(write):
    assert messages(write(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\n\n")) == []


def test_a_duplicate_id_names_the_first(write):
    assert messages(write([GOOD, {**GOOD, "id": "b", "prompt": "1 + 1 ="}, GOOD])) == [
        "mine.jsonl:3: duplicate id 'a'; first on line 1"
    ]


def test_one_prompt_under_two_ids_counts_once(write):
    asks_again = "mine.jsonl:2: asks what line 1 asks; drop one of them, or give both the same `cluster`"
    assert messages(write([GOOD, {**GOOD, "id": "b"}])) == [asks_again]
    assert messages(write([{**GOOD, "cluster": "c"}, {**GOOD, "id": "b"}])) == [asks_again]
    assert messages(write([{**GOOD, "cluster": "c"}, {**GOOD, "id": "b", "cluster": "c"}])) == []


def test_an_empty_set_is_refused(write):
    assert messages(write([])) == ["mine.jsonl:1: no cases; write one JSON object a line"]


def test_a_changed_set_says_both_hashes_and_what_to_do(write, tmp_path):
    old = "0" * 64
    (found,) = messages(write([GOOD], f"metrics: [exact_match]\nsha256: '{old}'"))
    new = hashlib.sha256((tmp_path / "mine.jsonl").read_bytes()).hexdigest()
    assert found.startswith("mine.yaml:4: ")
    assert old in found
    assert f"sha256: {new}" in found
    assert "version" in found


def test_every_fault_is_found_in_one_go(write):
    bad = [{**GOOD, "id": str(n), "max_new_tokens": -n} for n in range(30)]
    path = write(bad)
    assert len(evalsets.check(path)) == 30
    with pytest.raises(UsageError) as error:
        evalsets.load("./mine.yaml", path.parent)
    assert len(str(error.value).splitlines()) == 21
    assert "and 10 more" in str(error.value)


def test_a_fault_of_many_lines_is_told_once(write):
    path = write([{**GOOD, "id": str(n), "max_new_tokens": 0} for n in range(30)])
    with pytest.raises(UsageError) as error:
        evalsets.load("./mine.yaml", path.parent)
    (line,) = str(error.value).splitlines()
    assert ":1: " in line
    assert line.endswith(" (so are 29 more, to line 30)")


def test_cases_outside_the_folder_are_refused(write, tmp_path):
    path = write([GOOD])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine.jsonl").rename(tmp_path / "elsewhere" / "mine.jsonl")
    (tmp_path / "mine.jsonl").symlink_to(tmp_path / "elsewhere" / "mine.jsonl")
    assert "leads out of its folder" in messages(path)[0]
    (tmp_path / "mine.jsonl").unlink()
    (tmp_path / "mine.jsonl").symlink_to("mine.jsonl")
    assert "no mine.jsonl beside it" in messages(path)[0], "it leads to itself"


def test_a_shipped_name_never_means_a_file_beside_the_gate_file(write, tmp_path):
    write([GOOD], name="arithmetic")
    assert len(evalsets.load("arithmetic", tmp_path).cases) > 1


def test_every_shipped_reference_is_right_by_its_own_scorers():
    for name in evalsets.shipped():
        found = evalsets.load(name, Path())
        for case in found.cases:
            if "refuse" in case.body:  # without a reference: see evalsets_shipped/test_safety_pairs.py
                continue
            wrong = [item for item in score(case, found, case.body["answer"], "eos") if not item.verdict]
            assert not wrong, (name, case.id, wrong)


CALIBRATES = "kind: calibration"


def test_a_calibration_set_is_read_as_strictly_as_an_evalset(write, tmp_path):
    write([{"id": "a", "prompt": "Two and two?", "answer": "Four."}, {"id": "b", "prompt": "A text."}], CALIBRATES)
    found = evalsets.load_calibration("./mine.yaml", tmp_path)
    assert (found.name, found.version, len(found.cases)) == ("mine", "1", 2)
    assert found.sha256 == hashlib.sha256((tmp_path / "mine.jsonl").read_bytes()).hexdigest()
    path = write(
        [{"id": "a", "prompt": ""}, {"id": "a", "prompt": "x", "answer": 4}], f"{CALIBRATES}\nsha256: {'ab' * 32}"
    )
    said = messages(path)
    assert said[0].startswith("mine.jsonl:1: `prompt` must be a text")
    assert said[1:3] == [
        "mine.jsonl:2: `answer`, which is read after the prompt, must be a text; found 4",
        "mine.jsonl:2: duplicate id 'a'; first on line 1",
    ]
    assert said[3].startswith("mine.yaml:4: sha256 says abab")


def test_neither_kind_of_set_is_taken_for_the_other(write, tmp_path):
    write([GOOD])
    with pytest.raises(UsageError, match="calibrated on it would be judged on the same cases"):
        evalsets.load_calibration("./mine.yaml", tmp_path)
    write([GOOD], CALIBRATES)
    with pytest.raises(UsageError, match="which no model is judged on: name an evalset"):
        evalsets.load("./mine.yaml", tmp_path)
    with pytest.raises(UsageError, match="no shipped evalset 'calibration'"):
        evalsets.load("calibration", tmp_path)


def test_the_shipped_calibration_set_is_found_by_its_name_and_is_no_evalset(tmp_path):
    assert evalsets.shipped("calibration") == ("calibration",)
    assert "calibration" not in evalsets.shipped()
    assert len(evalsets.load_calibration("calibration", tmp_path).cases) == 266


TOOL_CALLS = "metrics: [tool_call.parses, tool_call.correct]"
MISTRAL = '[TOOL_CALLS][{"name": "book", "arguments": {"n": 2}}]'
HERMES = '<tool_call>{"name": "book", "arguments": {"n": 2}}</tool_call>'


def test_a_set_declares_the_dialect_of_the_cases_that_declare_none(write, tmp_path):
    own = {**CALLS, "id": "u", "messages": [{"role": "user", "content": "Book two."}], "dialect": "hermes"}
    cases = [{**CALLS, "answer": "a call"}, own]
    write(cases, TOOL_CALLS)
    bare = evalsets.load("./mine.yaml", tmp_path)
    write(cases, f"{TOOL_CALLS}\ndialect: mistral")
    found = evalsets.load("./mine.yaml", tmp_path)
    assert [case.body["dialect"] for case in found.cases] == ["mistral", "hermes"]
    assert [score(case, found, MISTRAL, "eos")[1].verdict for case in found.cases] == [True, None]
    assert [score(case, found, HERMES, "eos")[1].error_type for case in found.cases] == ["call_unread", ""]
    assert messages(write(cases, f"{TOOL_CALLS}\ndialect: auto")) == []
    # What decides a score is part of what the set and its cases are known by.
    assert found.content != bare.content
    assert [a.hash == b.hash for a, b in zip(found.cases, bare.cases, strict=True)] == [False, True]


def test_a_set_declares_how_thoughts_are_written(write, tmp_path):
    other = {**GOOD, "id": "u", "prompt": "other", "reasoning": "none"}
    write([GOOD, other], "metrics: [exact_match]\nreasoning: think")
    found = evalsets.load("./mine.yaml", tmp_path)
    assert [case.body["reasoning"] for case in found.cases] == ["think", "none"]
    said = [score(case, found, f"<think>no</think>{GOOD['answer']}", "eos")[0].verdict for case in found.cases]
    assert said == [True, False]


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("temperature", "gate file, `generation: {temperature: …}`"), ("seed", "gate file, `generation: {seed: …}`"),
        ("do_sample", "gate file, `generation: {temperature: …}`"), ("top_p", "gate file, `generation: {top_p: …}`"),
        ("min_p", "gate file, `generation: {min_p: …}`"),
        ("repetition_penalty", "gate file, `generation: {repetition_penalty: …}`"),
        ("max_tokens", "`max_new_tokens`"), ("max_gen_toks", "`max_new_tokens`"), ("stop", "at `max_new_tokens`"),
    ],
)  # fmt: skip
def test_settings_of_sampling_in_a_case_are_refused_with_the_place_they_belong_to(write, key, where):
    [fault] = messages(write([{**GOOD, key: 1}]))
    assert fault.startswith(f"mine.jsonl:1: `{key}` of a case has no effect; ")
    assert where in fault
    learned = write([{"id": "a", "prompt": "x", "answer": "y", key: 1}], "kind: calibration", "learned")
    assert where in messages(learned)[0]


def test_a_constraint_is_read_and_one_that_cannot_be_used_is_a_fault_with_its_line(write):
    sound = {**GOOD, "constraint": {"regex": "[0-9]+"}}
    assert messages(write([sound])) == []
    [fault] = messages(write([sound, {**GOOD, "id": "b", "prompt": "?", "constraint": {"regex": "(a"}}]))
    assert fault.startswith("mine.jsonl:2: `constraint.regex` cannot be used: ")
    [fault] = messages(write([{**GOOD, "constrain": {"regex": "a"}}]))
    assert "did you mean `constraint`" in fault
    learned = write([{"id": "a", "prompt": "x", "answer": "y", "constraint": {"regex": "a"}}], "kind: calibration", "l")
    assert "`constraint` of a case has no effect" in messages(learned)[0]


def test_a_question_asked_twice_in_one_cluster_is_noted_by_the_check_and_no_fault(write, capsys):
    from qualgate.cli.evalsets import evalset_check

    copies = [{**GOOD, "id": name, "cluster": "sum", "answer": answer} for name, answer in (("a", "4"), ("b", "four"))]
    evalset_check(str(write([*copies, {**GOOD, "id": "c", "prompt": "1 + 1 ="}])))
    said = capsys.readouterr()
    assert "fine. 3 cases" in said.out
    assert "1 question is asked more than once (a = b)" in said.err
    evalset_check(str(write([GOOD])))
    assert capsys.readouterr().err == ""


def calling(accepted: dict[str, list], **properties) -> dict:
    """A case that expects one call of a tool with these arguments, in BFCL's shape."""
    tool = {"name": "weather", "parameters": {"type": "dict", "properties": properties, "required": ["city"]}}
    return {**GOOD, "tools": [tool], "expected_calls": [{"weather": accepted}]}


@pytest.mark.parametrize(
    ("accepted", "named"),
    [
        ({"city": ["Paris"]}, ""),
        ({"city": ["Paris"], "unit": ["Celsius", "C", ""]}, ""),
        ({"city": ["Paris"], "unit": ["Celsius", ""]}, ""),
        ({"city": ["Paris"], "unit": ["Celsius"]}, "unit"),
        ({"city": [5]}, "city"),
        ({"unit": ["C"]}, "city"),
        ({"city": [""]}, "city"),
        ({"city": ["Paris"], "place": [{"lat": [1.5], "name": ["x", ""]}]}, ""),
        ({"city": ["Paris"], "place": [{"lat": ["north"]}]}, "place"),
    ],
)
def test_expected_calls_that_their_own_tools_schema_refuses_are_named_by_the_check(write, capsys, accepted, named):
    """A note and no fault: published sets hold such calls, and the case can be scored."""
    from qualgate.cli.evalsets import evalset_check

    place = {"type": "dict", "properties": {"lat": {"type": "float"}, "name": {"type": "string"}}}
    case = calling(accepted, city={"type": "string"}, unit={"type": "string", "enum": ["C", "F"]}, place=place)
    evalset_check(str(write([case], "metrics: [tool_call.correct]")))
    said = capsys.readouterr()
    assert "fine. 1 case" in said.out
    assert bool(named) == ("the tool's own schema refuses every accepted value: weather" in said.err), said.err
    assert named in said.err
