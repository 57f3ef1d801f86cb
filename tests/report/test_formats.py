"""Every format says what the verdicts say, fits its host, and a model's text is only ever text in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from qualgate.errors import EXIT_ORDER, Exit
from qualgate.gate.verdict import decide_plain
from qualgate.records import Comparison, Policy, Rule, Verdict
from qualgate.report.findings import VERDICT, findings
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.formats.body import report_schema
from qualgate.report.formats.github import append_step_summary, report_as_step_summary
from qualgate.report.source import Source, stored_source
from qualgate.report.summary import Report
from qualgate.report.unstored import report_of
from tests.gate.planted import run as planted
from tests.report.reading import ATTACK, Page, checked_json


def crowded(report: Report, rules: int, words: str = "x") -> Report:
    """A report with so many broken rules in each verdict; `words` is each one's reason."""

    def verdict(stored: Any) -> Any:
        one = stored.verdict.comparisons[0]
        many = tuple(
            replace(one, slice=f"set{number}", status="proven" if number % 2 else "broken", reason=f"{number} {words}")
            for number in range(rules)
        )
        word = replace(stored.verdict, word="block", exit=10, reasons=(words, *map(str, range(50))), comparisons=many)
        return replace(stored, verdict=word)

    return replace(report, run=replace(report.run, verdicts=tuple(map(verdict, report.run.verdicts))))


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_report_is_the_same_text_and_ends_its_line(report: Report, form: str) -> None:
    text = rendered(report, form)
    assert text == rendered(report, form)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("form", FORMATS)
def test_no_format_holds_a_character_that_hides_or_moves_text(attacked: Report, form: str) -> None:
    hiding = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\ufffe\uffff\U000e0000-\U000e007f]"
    assert not re.search(hiding, rendered(attacked, form))


# ------------------------------------------------------------------------------------------------------------ JSON


def test_every_json_report_keeps_the_shipped_schema(report: Report, unfinished: Report, attacked: Report) -> None:
    Draft202012Validator.check_schema(report_schema())
    for one in (report, unfinished, attacked, crowded(report, 20)):
        checked_json(one)


@pytest.mark.parametrize("path", [("exit",), ("verdicts", 0, "word"), ("policy", "rules", 0, "metric"), ("flips",)])
def test_the_schema_misses_nothing(report: Report, path: tuple[Any, ...]) -> None:
    body = json.loads(rendered(report, "json"))
    inner = body
    for key in path[:-1]:
        inner = inner[key]
    check = Draft202012Validator(report_schema())
    assert not check.is_valid({**body, "schema": 2})
    inner[path[-1]] = object
    assert not check.is_valid(body)
    del inner[path[-1]]
    assert not check.is_valid(body)


def test_the_json_report_keeps_the_true_code_under_warn_only(report: Report, unfinished: Report) -> None:
    assert json.loads(rendered(replace(report, warn_only=True), "json"))["exit"] == 10
    assert json.loads(rendered(unfinished, "json"))["exit"] == 13


# ----------------------------------------------------------------------------------------------------------- JUnit


def suites(report: Report) -> Iterator[tuple[ElementTree.Element, int]]:
    """Each suite with the number of its failures and errors, recounted."""
    root = ElementTree.fromstring(rendered(report, "junit"))
    for suite in root:
        kinds = {kind: len(suite.findall(f"testcase/{kind}")) for kind in ("failure", "error", "skipped")}
        assert int(suite.get("tests", "")) == len(suite.findall("testcase"))
        assert (suite.get("failures"), suite.get("errors")) == (str(kinds["failure"]), str(kinds["error"]))
        assert suite.get("skipped") == str(kinds["skipped"])
        yield suite, kinds["failure"] + kinds["error"]


def test_a_junit_suite_is_green_exactly_when_its_variant_is_approved(report: Report, unfinished: Report) -> None:
    words = {suite.get("name"): bad for suite, bad in suites(report)}
    assert {v.variant for v in report.verdicts if v.exit == 0} == {name for name, bad in words.items() if not bad}
    assert words.keys() == {verdict.variant for verdict in report.verdicts}
    assert [bad for _, bad in suites(unfinished)] == [1]


@pytest.mark.parametrize("word", ["approve", "review", "undecided", "invalid"])
@pytest.mark.parametrize("rules", [(), (("supporting", "undecided"), ("advisory", "broken"))])
def test_junit_follows_the_verdict_and_not_the_advisory_rules(report: Report, word: Any, rules: Any) -> None:
    stored = report.run.verdicts[0]
    some = tuple(replace(stored.verdict.comparisons[0], tier=tier, status=status) for tier, status in rules)
    verdict = replace(stored.verdict, word=word, exit=0 if word == "approve" else 12, comparisons=some)
    one = replace(report, run=replace(report.run, verdicts=(replace(stored, verdict=verdict),)))
    assert [bool(bad) for _, bad in suites(one)] == [word != "approve"]


def test_one_junit_case_for_the_verdict_and_each_rule_with_its_slice(report: Report) -> None:
    for suite, verdict in zip(ElementTree.fromstring(rendered(report, "junit")), report.verdicts, strict=True):
        names = [case.get("name", "") for case in suite.findall("testcase")]
        assert names[0] == "verdict"
        assert len(names) == len(set(names)) == 1 + len(verdict.comparisons)


def test_a_large_junit_report_stays_below_a_megabyte_and_keeps_the_worst(report: Report) -> None:
    large = crowded(report, 1500, "ü" * 900)
    text = rendered(large, "junit")
    assert len(text.encode()) <= 1_000_000
    for suite, bad in suites(large):
        assert bad > 100
        last = suite.findall("testcase")[-1]
        assert last.get("name") == "left out"
        said = last[0].get("message", "")
        assert int(re.findall(r"[\d,]+", said)[0].replace(",", "")) == 1500 + 1 - (len(suite.findall("testcase")) - 1)
        assert all(len(case) for case in suite.findall("testcase")), "a proven rule took the place of a broken one"


# ---------------------------------------------------------------------------------------- findings, GitLab, SARIF


def test_findings_are_rules_worst_first_and_an_approval_has_none(report: Report) -> None:
    found = findings(report)
    order = ["error", "warning", "note"]
    assert [order.index(one.level) for one in found] == sorted(order.index(one.level) for one in found)
    assert not [one for one in found if one.variant == "int8" and one.level != "note"]
    assert {one.variant for one in found if one.level == "error"} == {"int2-g32"}
    assert len({one.fingerprint for one in found}) == len(found)


def test_a_verdict_that_no_rule_explains_is_a_finding_itself(report: Report) -> None:
    stored = report.run.verdicts[0]
    broken = Verdict(variant="int8", word="invalid", exit=14, reasons=("a digest is wrong",))
    one = replace(report, run=replace(report.run, verdicts=(replace(stored, verdict=broken),)))
    (found,) = findings(one)
    assert (found.level, found.rule) == ("error", VERDICT)
    assert "a digest is wrong" in found.message


def test_a_fingerprint_does_not_follow_the_numbers(report: Report) -> None:
    again = crowded(report, 6, "other words")
    assert [f.fingerprint for f in findings(crowded(report, 6))] == [f.fingerprint for f in findings(again)]


def test_gitlab_violations_have_what_gitlab_reads(report: Report, attacked: Report) -> None:
    for one in (report, attacked, crowded(report, 2000)):
        entries = json.loads(rendered(one, "gitlab"))
        assert 0 < len(entries) <= 1000
        for entry in entries:
            assert entry["severity"] in ("info", "minor", "major", "critical", "blocker")
            assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
            assert re.fullmatch("[0-9a-f]{64}", entry["fingerprint"])
            assert "\n" not in entry["description"]
            assert not entry["location"]["path"].startswith(("/", "./"))
            assert entry["location"]["lines"]["begin"] >= 1
    assert entries[-1]["description"].startswith("2,001 more findings")  # three variants with 1,000 broken rules each


def test_sarif_results_name_rules_that_the_driver_describes(report: Report, attacked: Report) -> None:
    for one in (report, attacked, crowded(report, 3600)):
        body = json.loads(rendered(one, "sarif"))
        (run,) = body["runs"]
        described = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
        assert body["version"] == "2.1.0"
        assert len(described) == len(set(described))
        assert len(run["results"]) <= 5000
        for result in run["results"]:
            place = result["locations"][0]["physicalLocation"]
            assert result["ruleId"] in described
            assert result["level"] in ("error", "warning", "note")
            assert result["message"]["text"]
            assert place.get("region", {"startLine": 1})["startLine"] >= 1
            assert re.fullmatch(r"[\w.%/-]+", place["artifactLocation"]["uri"]), "a URI, relative to the checkout"
        assert run["invocations"] == [{"executionSuccessful": True, "exitCode": int(one.exit)}]
    assert run["results"][-1]["message"]["text"].startswith("401 more findings")


def test_findings_stand_on_the_rules_lines_of_the_stored_gate_file(report: Report) -> None:
    rules = (Rule(metric="exact_match", max_drop=0.02), Rule(metric="numeric", max_drop=0.05))
    policy = replace(report.policy, rules=rules)
    text = "version: 1\ngate:\n  rules:\n    - {metric: exact_match, max_drop: 0.02}\n    # why\n    - metric: x\n"
    assert [stored_source(text, policy).line(rule.id) for rule in rules] == [4, 6]
    for other in ("", "gate: {rules: []}", "[1", "gate: 3", "- gate"):
        assert stored_source(other, policy) == Source()


@pytest.mark.parametrize("form", ["html", "markdown", "junit", "github"])
def test_a_rule_that_could_not_be_told_says_why_though_it_is_advisory(form: str) -> None:
    policy = Policy(rules=(Rule(metric="exact_match", max_drop=0.1),
                           Rule(metric="stability.sqnr", min=20.0, tier="advisory")))  # fmt: skip
    evidence = planted()
    made = report_of(evidence, decide_plain(evidence, policy), policy, ["b.jsonl", "v.jsonl"])
    assert made.exit == 0
    text = rendered(made, form)
    shown = "".join(Page(text).text) if form == "html" else text.replace("\\", "")
    assert "the weights were not packed by this run" in shown


# ---------------------------------------------------------------------------------------------------------- GitHub


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """(kind, properties, message) of each workflow command, as the runner takes them apart."""
    found = []
    for line in text.splitlines():
        kind, properties, message = re.fullmatch(r"::(\w+) (.*?)::(.*)", line).groups()  # type: ignore[union-attr]
        pairs = dict(pair.split("=", 1) for pair in properties.split(","))
        found.append((kind, pairs, message.replace("%0A", "\n").replace("%25", "%")))
    return found


def test_annotations_point_at_rules_and_say_how_many_are_hidden(report: Report, attacked: Report) -> None:
    assert commands(rendered(report, "annotations"))
    for one in (report, attacked, crowded(report, 100)):
        found = commands(rendered(one, "annotations"))
        kinds = [kind for kind, _, _ in found]
        assert set(kinds) <= {"error", "warning", "notice"}
        assert all(kinds.count(kind) <= 5 for kind in kinds)
        assert all("\n" not in message for _, _, message in found)
    assert found[-1][2].startswith("146 more like these")  # 3 x 50 broken rules, four of them shown


def test_the_step_summary_has_every_verdict_and_stays_below_its_limit(report: Report) -> None:
    text = rendered(report, "github")
    assert all(f"<b>{v.variant}</b>: {v.word}</summary>" in text for v in report.verdicts)
    assert text.count("<details>") == text.count("</details>") == len(report.verdicts) + 1
    large = rendered(crowded(report, 500, "ü" * 3000), "github")
    assert len(large.encode()) <= 200_000
    assert "more rules are in the HTML or JSON report" in large
    for limit in (0, 100, 2000, 5000):
        cut = report_as_step_summary(report, limit)
        assert len(cut.encode()) <= max(limit, 800)
        assert "exit" in cut.lower()
        assert cut.count("<details>") == cut.count("</details>")
        assert "Not shown here" in cut


def test_the_step_summary_is_appended_and_never_pushes_the_file_over_a_mebibyte(
    report: Report, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    append_step_summary(report)
    append_step_summary(replace(report, warn_only=True))
    first, second = path.read_text().split("## qualgate")[1:]
    assert "true exit code" not in first
    assert "the true exit code is **10**" in second
    path.write_text("x" * ((1 << 20) - 3000))
    append_step_summary(report)
    assert (1 << 20) - 3000 < path.stat().st_size < 1 << 20
    path.write_text("x" * ((1 << 20) - 2))
    append_step_summary(report)
    assert path.stat().st_size == (1 << 20) - 2


@pytest.mark.proof
def test_every_format_stays_within_its_hosts_limit_with_20_000_hostile_answers(attacked: Report) -> None:
    stored = attacked.run.verdicts[0]
    one = next(one for one in stored.verdict.comparisons if (one.status, one.tier) == ("broken", "critical"))
    rules = tuple(replace(one, slice=f"{number} {ATTACK}") for number in range(5_200))
    verdict = replace(stored.verdict, word="block", exit=10, comparisons=rules)
    lost = attacked.flips[ATTACK][0]
    flips = tuple(replace(lost, case_id=f"{number} {ATTACK}", variant=ATTACK * 20) for number in range(20_000))
    run = replace(attacked.run, verdicts=(replace(stored, verdict=verdict),))
    large = replace(attacked, run=run, flips={ATTACK: flips})
    assert len(rendered(large, "github").encode()) <= 1 << 20
    assert len(rendered(large, "junit").encode()) <= 1_000_000
    assert len(rendered(large, "annotations").splitlines()) <= 10
    assert len(json.loads(rendered(large, "gitlab"))) <= 1000
    sarif = rendered(large, "sarif").encode()
    assert len(json.loads(sarif)["runs"][0]["results"]) <= 25_000
    assert len(sarif) <= 10_000_000


# ------------------------------------------------------------------------------------------------------------ HTML


def test_a_run_that_is_not_complete_says_so_in_every_format(unfinished: Report) -> None:
    for form in ("html", "junit", "github", "annotations", "gitlab", "sarif"):
        assert "not complete" in rendered(unfinished, form)


def test_numbers_that_are_missing_everywhere_break_no_format(report: Report) -> None:
    stored = report.run.verdicts[0]
    bare = tuple(
        Comparison(rule=rule.id, metric=rule.metric, slice="pooled", tier="critical", status="undecided", n=0)
        for rule in report.policy.rules
    )
    verdict = replace(stored.verdict, word="undecided", exit=12, comparisons=bare, drift={"drift.kl_mean": None})
    run = replace(report.run, verdicts=(replace(stored, verdict=verdict),), evalsets=(), failures=("x",))
    one = replace(report, run=run, flips={}, drift={}, flip_counts={})
    for form in FORMATS:
        assert rendered(one, form)


def test_what_stands_on_no_known_line_points_at_the_whole_gate_file(report: Report) -> None:
    bare = replace(report, source=Source(path="gate.yaml"))
    assert {one.line for one in findings(bare)} == {None}
    for result in json.loads(rendered(bare, "sarif"))["runs"][0]["results"]:
        place = result["locations"][0]["physicalLocation"]
        assert place == {"artifactLocation": {"uri": "gate.yaml"}}
    for _, properties, _ in commands(rendered(bare, "annotations")):
        assert "line" not in properties
    begins = {entry["location"]["lines"]["begin"] for entry in json.loads(rendered(bare, "gitlab"))}
    assert begins == {1}, "GitLab drops an entry without a line"


def test_a_step_summary_tells_blocks_first_and_folds_what_is_read_on_demand(report: Report) -> None:
    text = rendered(report, "github")
    exits = {verdict.variant: verdict.exit for verdict in report.verdicts}
    worst_first = sorted(exits, key=lambda name: EXIT_ORDER.index(Exit(exits[name])))
    assert (exits[worst_first[0]], exits[worst_first[-1]]) == (10, 0)
    assert re.findall(r"^\| (\S+) \| [✅❌👀❔⛔] ", text.replace("\\", ""), re.MULTILINE) == worst_first
    assert re.findall(r"<details><summary>\S+ <b>(.*?)</b>", text) == worst_first
    assert text.count("<details>") == text.count("</details>") == len(exits) + 1


# ------------------------------------------------------------------------------- OpenTelemetry, Every Eval Ever


def test_otlp_takes_every_event_and_its_numbers_are_the_reports(report: Report) -> None:
    from google.protobuf import json_format
    from opentelemetry.proto.logs.v1.logs_pb2 import LogsData

    logs = json_format.Parse(rendered(report, "otel"), LogsData())
    records = logs.resource_logs[0].scope_logs[0].log_records
    assert {record.event_name for record in records} == {"gen_ai.evaluation.result"}
    events = [{a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes} for record in records]
    verdicts = [event for event in events if event["gen_ai.evaluation.name"] == "qualgate.verdict"]
    assert [(e["qualgate.variant"], e["gen_ai.evaluation.score.label"]) for e in verdicts] == [
        (verdict.variant, verdict.word) for verdict in report.verdicts
    ]
    told = [(e["qualgate.rule"], e.get("gen_ai.evaluation.score.value")) for e in events if "qualgate.rule" in e]
    assert told == [(line.rule, line.variant) for verdict in report.verdicts for line in verdict.comparisons]


def test_every_eval_evers_records_hold_each_arms_scores(report: Report) -> None:
    records = [json.loads(line) for line in rendered(report, "every-eval").splitlines()]
    assert [record["model_info"]["name"] for record in records] == ["baseline", *(v.variant for v in report.verdicts)]
    for record, verdict in zip(records[1:], report.verdicts, strict=True):
        scores = [result["score_details"]["score"] for result in record["evaluation_results"]]
        assert scores == [line.variant for line in verdict.comparisons if line.variant is not None]
        assert record["model_info"]["additional_details"]["verdict"] == verdict.word
