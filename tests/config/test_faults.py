"""What is wrong with a gate file: each mistake is named with its line, and all of them at once."""

from __future__ import annotations

import pytest

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.records.metrics import PLANNED
from tests.config.gate_files import FAULTS, SMALL, WHOLE, changed, ruled

LINES = [*FAULTS["lines"], [2, f"baseline: {{model: ./{'a/' * 3000}}}", "cannot be a path"]]
RULES = [*FAULTS["rules"], *([f"{{metric: {name}, max: 1}}", "not in this version"] for name in PLANNED)]


@pytest.mark.parametrize(("line", "change", "message"), LINES, ids=[change[:60] for _, change, _ in LINES])
def test_a_mistake_is_named_with_its_line(faults, line, change, message):
    found = faults(changed(line, change), schema=True)
    assert any(message in text and number == line for number, text in found), found
    assert "\x1b" not in str(found)


@pytest.mark.parametrize(
    ("line", "change", "messages"),
    [
        (2, "baseline: {modle: ./base}", ["unknown key 'modle'; did you mean 'model'?"]),
        (2, "base_line: {model: ./base}", ["unknown key 'base_line'; did you mean 'baseline'?"]),
        (5, "gate: {ruls: [{metric: exact_match, max_drop: 0.1}]}", ["unknown key 'ruls'; did you mean 'rules'?"]),
        (5, "gate: {rules: [{metrc: exact_match, max_drop: 0.1}]}", ["unknown key 'metrc'; did you mean 'metric'?"]),
        (2, "baseline: {folder: ./base}", ["`baseline.model` is missing", "unknown key 'folder'"]),
    ],
)
def test_a_misspelt_key_is_one_mistake_and_a_missing_one_beside_it_another(faults, line, change, messages):
    found = faults(changed(line, change))
    assert [number for number, _ in found] == [line] * len(messages)
    assert all(said.startswith(message) for (_, said), message in zip(found, messages, strict=True)), found


@pytest.mark.parametrize(("rule", "message"), RULES, ids=[rule for rule, _ in RULES])
def test_a_rule_that_cannot_be_meant_is_refused(faults, rule, message):
    found = faults(changed(5, f"gate:\n  rules: [{{metric: exact_match, max_drop: 0.02}},\n    {rule}]"), schema=True)
    assert any(number == 7 and message in text for number, text in found), found


@pytest.mark.parametrize(("more", "message"), FAULTS["sections"])
def test_a_section_that_cannot_be_served_is_refused(faults, more, message):
    found = faults(SMALL + more + "\n", schema=True)
    assert [number for number, _ in found] == [6]
    assert message in found[0][1]
    assert "hunter2" not in found[0][1]


def test_all_faults_are_reported_at_once(faults):
    text = WHOLE.replace("mxfp4}", "mxfp5}").replace("alpha: 0.1", "alpha: 7").replace("exact_match, max", "exact, max")
    assert [number for number, _ in faults(text)] == [4, 10, 13]


def test_only_keys_of_the_future_make_it_not_in_this_version(load):
    with pytest.raises(NotInThisVersion):
        load(SMALL + "workers: {devices: cuda}\n")
    with pytest.raises(UsageError) as error:
        load(SMALL + "workers: {devices: cuda}\ngeneration: {repeats: -2}\n")
    assert not isinstance(error.value, NotInThisVersion)


@pytest.mark.parametrize(
    "rules",
    [
        "{metric: exact_match, max_drop: 0.02, tier: supporting}",
        "{metric: drift.kl_mean, max: 0.1}",
        "{metric: latency.tpot, max_ratio: 1.1}",
    ],
)
def test_a_policy_that_could_never_approve_is_refused(faults, rules):
    (fault,) = faults(ruled(rules))
    assert "no critical rule on quality" in fault[1]
