"""Score files through `qualgate gate`: the same verdict, report and exit code as of a run."""

from __future__ import annotations

import gzip
import json
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import numpy as np
import pytest

from qualgate.config import load_gate_file
from qualgate.errors import UsageError
from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.intake.score_rows import read_score_rows
from qualgate.pipeline.from_files import UNKEPT
from qualgate.records import RunEvidence
from qualgate.report.formats.body import report_schema
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.gate import planted
from tests.intake.score_files import body, code, exported, external, gate_file, gated, lay, said, written
from tests.store.made import make_plan, make_run


def stored(folder: Path, wrong: float, cases: int = 100) -> RunEvidence:
    """What a store hands the gate, without what no score row holds: drift, tokens, and what the two weights are."""
    plan = make_plan(cases=cases, wrong={"variant": wrong})
    with open_store(f"sqlite:///{folder}/q.db") as store:
        evidence = runs.evidence(store, make_run(store, plan, {"variant": wrong}))
    return planted.with_each(
        evidence, "variant", kl=(), top1_agreement=None, first_divergence=None, token_ids=b"", prompt_tokens=None
    )


def bytes_of(verdicts) -> str:
    return json.dumps(verdicts, ensure_ascii=True, sort_keys=True)


@pytest.mark.parametrize("wrong", [0.0, 0.06, 0.4])
def test_a_stored_runs_exported_scores_give_the_same_verdict_report_and_code(tmp_path, wrong):
    evidence = stored(tmp_path, wrong)
    files = exported(tmp_path, evidence)
    direct = decide_plain(evidence, load_gate_file(files[0], files=False).policy)
    done = gated(files)
    assert done.exit_code == int(overall_exit(direct)), done.output
    (found,) = json.loads(done.stdout)["verdicts"]
    *reasons, closed = [
        reason for reason in found["reasons"] if "equal the baseline's" not in reason and reason != UNKEPT
    ]
    assert closed.startswith("the expected cases of arithmetic, json_extract, tool_calls are those of both files")
    assert bytes_of([{**found, "reasons": reasons}]) == bytes_of([asdict(one) for one in direct])


def test_times_and_cut_off_answers_are_evidence_in_score_rows(tmp_path):
    whole = planted.run(n=120)
    slow = planted.with_each(whole, "int4", lambda u: replace(u, values=u.values | {"latency.e2e": 9.0}))
    cut = planted.with_units(whole, "baseline", lambda us: (replace(u, truncated=i < 30) for i, u in enumerate(us)))
    assert [code(exported(tmp_path, one)) for one in (whole, slow, cut)] == [0, 11, 12]


def test_what_editors_and_shells_add_to_a_file_is_no_fault_and_what_is_no_text_is_named(tmp_path):
    gate, a, b = exported(tmp_path, planted.run(n=120))
    plain = b.read_bytes()
    for found in (b"\xef\xbb\xbf" + plain, plain + b"\n", plain + b"\n \r\n\t\n", plain.replace(b"\n", b"\r\n")):
        b.write_bytes(found)
        assert code((gate, a, b)) == 0
    lines = plain.splitlines(keepends=True)
    for found, told in (
        (gzip.compress(plain), r"b\.jsonl:1: the file is compressed \(gzip\); give it unpacked"),
        (plain.decode().encode("utf-16"), r"b\.jsonl:1: the file is UTF-16; save it as UTF-8"),
        (b"".join([*lines[:5], b"\n", *lines[5:]]), r"b\.jsonl:7: line 6 before it is empty"),
        (b"".join([lines[0], b"\xef\xbb\xbf", *lines[1:]]), r"b\.jsonl:2: not JSON"),
        (b"\xef\xbb\xbf\n\n", r"b\.jsonl is empty"),
        (b"id,metric,value\n", r"b\.jsonl:1: not JSON lines, .* one a line; found 'id,metric,value'$"),
        (b'{"question": "x"\n', r"b\.jsonl:1: not JSON: Expecting ',' delimiter at column 17\. Was the file cut"),
    ):
        b.write_bytes(found)
        with pytest.raises(UsageError, match=told):
            read_score_rows(b)
        assert code((gate, a, b)) == 64


def test_the_closed_list_of_score_files_fails_closed(tmp_path):
    evidence = planted.run(n=120)
    gate, a, b = exported(tmp_path, evidence)
    assert code((gate, a, b)) == 0

    few = [line for line in a.read_text().splitlines() if '"code-1"' not in line]
    (tmp_path / "few.jsonl").write_text("\n".join(few))
    assert code((gate, a, tmp_path / "few.jsonl")) == 13, "a case of one side alone"
    assert code((gate, tmp_path / "few.jsonl", b)) == 13, "of the other"
    (tmp_path / "as few.jsonl").write_text("\n".join(few).replace('"model": "baseline"', '"model": "another"'))
    both = (gate, tmp_path / "few.jsonl", tmp_path / "as few.jsonl")
    assert code(both) == 0, "nobody said that it was expected"
    listed = "".join(json.dumps({"evalset": k.evalset, "id": k.case_id}) + "\n" for k in set(evidence.expected))
    (tmp_path / "ids.jsonl").write_text(listed)
    asked = exported(tmp_path, evidence, "  expected: ./ids.jsonl")[0]
    assert code((asked, *both[1:])) == 13, "missing on both sides"

    one_more = exported(tmp_path, evidence, sets=", ".join(map(external, ("code", "tools", "third"))))
    assert code(one_more) == 12, "an evalset without a row"
    assert code(exported(tmp_path, evidence, sets=external("code"))) == 64, "rows of a set that is not gated"
    assert code(exported(tmp_path, evidence), "--run", "x") == 64
    assert code(exported(tmp_path, evidence), "--four-arm") == 64, "not asked for and left out"
    shipped = exported(tmp_path, evidence, sets=f"{external('code')}, tool_calls")
    assert code(shipped) == 64, "rows that are of no shipped set"


def flaky(cases: int) -> RunEvidence:
    """100 cases with 4 repeats; the variant gets only one of four right in so many of them, the rest is right."""
    right = np.ones((100, 4))
    right[:cases, [0, 1, 3]] = 0
    return planted.repeated(baseline=np.ones((100, 4)), int4=right)


@pytest.mark.parametrize(
    ("rule", "exit", "n", "variant"),
    [
        ("{metric: exact_match, max_drop: 0.10}", 10, 400, 0.775),
        ("{metric: exact_match, max_drop: 0.10, repeats: any}", 0, 100, 1.0),
        ("{metric: exact_match, max_drop: 0.10, repeats: all}", 10, 100, 0.7),
    ],
)
def test_repeats_in_score_files_count_as_the_rule_says(tmp_path, rule, exit, n, variant):
    """The mean, pass@k and pass^k, with the repeats of a case as one cluster: from rows to the exit code."""
    files = exported(tmp_path, flaky(30))
    head, _, _ = files[0].read_text().partition("    - ")
    files[0].write_text(f"{head}    - {rule}\n    - {{metric: stability.repeats, min: 0.9, tier: advisory}}\n")
    done = gated(files)
    assert done.exit_code == exit, done.output
    one, alike = json.loads(done.stdout)["verdicts"][0]["comparisons"]
    assert (one["n"], one["variant"], one["clusters"]) == (n, variant, 100 if n == 400 else None)
    assert (alike["status"], alike["variant"]) == ("broken", 0.7)
    assert "30 of 100 cases differ between their repeats" in done.stdout
    rows = files[2].read_text().splitlines(keepends=True)
    files[2].write_text("".join(line for line in rows if '"c5", "repeat": 3' not in line))
    assert code(files) == 13, "a repeat that one side lacks"


def own_set(folder: Path, cases: int = 120, **more: object) -> dict[str, str]:
    return lay(folder, "own", [body(f"c{n}", f"p{n}", **more) for n in range(cases)])


def test_where_the_evalset_lies_beside_the_gate_file_its_cases_are_the_closed_list(tmp_path):
    hashes = own_set(tmp_path)
    gate = gate_file(tmp_path, "./own.yaml")

    def found(ids, hashed) -> int:
        rows = [{"id": id, "case_hash": hashed(id)} for id in ids]
        return code((gate, *(written(tmp_path / f"{side}.jsonl", rows) for side in "ab")))

    assert found(hashes, hashes.get) == 0
    assert found([*hashes][:12], hashes.get) == 13, "12 of 120 rows, the same 12 on both sides"
    assert found(hashes, "other {}".format) == 12, "equal on both sides, and not the set that lies there"


def test_a_length_is_proven_where_the_evalset_says_how_long_an_answer_may_become(tmp_path):
    rule = "max_drop: 0.1}, {metric: drift.length_ratio, max: 1.5"

    def found(most: int, sets: str = "./own.yaml") -> tuple[int, str]:
        hashes = own_set(tmp_path, max_new_tokens=most)
        if sets != "./own.yaml":
            (tmp_path / "own.yaml").unlink()
        rows = [{"id": id, "case_hash": hash, "tokens": 10} for id, hash in hashes.items()]
        sides = [written(tmp_path / f"{side}.jsonl", rows) for side in "ab"]
        return said((gate_file(tmp_path, sets, rule), *sides))

    assert found(1024)[0] == 12
    assert found(64)[0] == 0
    exit, text = found(64, external("own"))
    assert (exit, "keep the evalset where the gate file names it" in text) == (12, True)


def test_what_an_evalset_says_of_its_cases_is_not_left_to_the_rows(tmp_path):
    """Its tags, and which metrics its cases have. Rows of another evalset, which nobody has here, are fine."""
    hashes = lay(tmp_path, "own", [body(f"c{n}", f"p{n}", tags=["hard"] if n < 120 else []) for n in range(240)])

    def found(rule: str = "", metric: str = "exact_match", wrong: int = 0, hard=lambda n: n < 120) -> int:
        def rows(lost: int):
            for n in range(240):
                yield {"evalset": "own", "id": f"c{n}", "metric": metric, "value": int(n >= lost),
                       "case_hash": hashes[f"c{n}"], "tags": ["hard"] if hard(n) else []}  # fmt: skip
                yield {"evalset": "far", "id": f"f{n}", "case_hash": f"f{n}", "tags": []}

        gate = gate_file(tmp_path, f"./own.yaml, {external('far')}", f"max_drop: 0.15{rule}")
        return code((gate, written(tmp_path / "a.jsonl", rows(0)), written(tmp_path / "b.jsonl", rows(wrong))))

    tagged = ", where: {tag: hard}"
    assert (found(), found(tagged)) == (0, 12), "which leaves the other cases uncounted"
    assert found(metric="latency.e2e") == 13, "not passed over for want of the score"
    assert found(tagged, wrong=60) == 10
    assert found(tagged, wrong=60, hard=lambda n: n >= 120) == 10, "whatever its rows call hard"


@pytest.mark.parametrize("form", ["html", "markdown"])
def test_answers_that_score_files_do_not_hold_are_not_called_empty(tmp_path, form):
    files = exported(tmp_path, planted.run(n=120, lost=0.3))
    for file in files[1:3]:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        file.write_text("".join(json.dumps({**row, "extracted": "", "reason": ""}) + "\n" for row in rows))
    assert gated(files, "--format", form, "--out", str(tmp_path / form), json=False).exit_code == 10
    text = (tmp_path / form).read_text()
    assert ("empty answer" in text, "```" in text, "right" in text.lower()) == (False, False, True)


def test_a_gate_over_score_files_reports_in_every_form_that_a_run_does(tmp_path, monkeypatch):
    files = exported(tmp_path, planted.run(n=120, lost=0.3))
    rows = [json.loads(line) for line in files[2].read_text().splitlines()]
    files[2].write_text("".join(json.dumps({**row, "extracted": "said `this`", "reason": "not that"}) + "\n"
                                for row in rows))  # fmt: skip
    text = {}
    for form in ("json", "markdown", "html", "junit", "annotations", "gitlab", "sarif"):
        done = gated(files, "--format", form, "--out", str(tmp_path / form), json=False)
        assert done.exit_code == 10, done.output
        assert done.stdout.startswith("variant  BLOCK"), "the log says it as well"
        text[form] = (tmp_path / form).read_text()
    assert text["json"] == gated(files).stdout
    told = json.loads(text["json"])
    jsonschema.validate(told, report_schema())
    assert {(one["metric"], one["evalset"], one["lost"]) for one in told["flip_counts"]["variant"]} == {
        ("exact_match", "code", 36), ("exact_match", "tools", 36), ("tool_call.valid", "tools", 36)
    }  # fmt: skip
    assert [one["variant"] for one in told["flips"]["variant"]] == ["said `this`"] * 20
    assert ("said `this`" in text["markdown"], "not that" in text["html"]) == (True, True)
    assert {one.attrib["failures"] for one in ElementTree.fromstring(text["junit"]).iter("testsuite")} != {"0"}
    line = next(i for i, row in enumerate(files[0].read_text().splitlines(), 1) if "max_drop: 0.10" in row)
    assert f"::error file=gate.yaml,line={line}," in text["annotations"]
    assert json.loads(text["gitlab"])[0]["location"]["lines"]["begin"] == line
    assert json.loads(text["sarif"])["runs"][0]["results"]

    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    done = gated(files, "--warn-only")
    assert (done.exit_code, "the true exit code is 10" in done.stderr) == (0, True)
    assert "::error file=gate.yaml" in done.stderr
    assert "**Warn only:** the true exit code is **10**" in (tmp_path / "summary.md").read_text()
    assert code(files, "--format", "docx") == 64


def test_peers_and_an_nel_policy_speak_of_score_files_too(tmp_path):
    files = exported(tmp_path, planted.run(n=120))
    told = json.loads(gated(files, "--peers").stdout)
    assert {one["verdict"]["name"] for one in told["peers"]} >= {"nel_v1", "lm_eval_z", "vllm_rtol"}
    assert code(files, "--peers", "--format", "html") == 0, "--json wins"
    nel = tmp_path / "nel.yaml"
    nel.write_text("defaults: {metric: mean_reward, max_drop: 0.1, tier: critical}\n")
    told = json.loads(gated(files, "--nel-policy", str(nel)).stdout)
    assert [one["says"] for one in told["nel"]] == ["GO"]
    assert {rule["max_drop"] for rule in told["policy"]["rules"]} == {0.1}
    files[0].write_text(f"{files[0].read_text().partition('  rules:')[0]}  nel_policy: nel.yaml\n")
    assert code(files) == 0, "the gate file brings it"
    worse = exported(tmp_path, planted.run(n=120, lost=0.3))
    done = gated(worse, "--nel-policy", str(nel))
    rules = json.loads(done.stdout)["policy"]["rules"]
    assert (done.exit_code, [rule["evalset"] for rule in rules]) == (10, ["code", "tools"])
    nel.write_text("defaults: {metric: vibes, max_drop: 0.1, tier: critical}\n")
    assert code(files, "--nel-policy", str(nel)) == 64
