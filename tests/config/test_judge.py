"""A gate file's judge: what it is, and what it may not be."""

from __future__ import annotations

import pytest

from qualgate.errors import UsageError
from qualgate.records import Price

GATE = """\
version: 1
baseline: {{endpoint: http://127.0.0.1:1/v1, model: b}}
variants: {{awq: {{endpoint: http://127.0.0.1:2/v1, model: v{role}}}}}
evalsets: [{{name: support, cases: external}}]
{judge}
gate: {{rules: [{rules}]{more}}}
"""
JUDGE = "endpoint: http://127.0.0.1:3/v1, model: judge, rubric: The right answer wins., labels: labels.jsonl"
QUALITY, WIN = "{metric: exact_match, max_drop: 0.02}", "{metric: judge.win, max_drop: 0.05}"


def gate(judge: str | None = JUDGE, rules: str = f"{QUALITY}, {WIN}", more: str = "", role: str = "") -> str:
    said = f"judge: {{{judge}}}" if judge is not None else ""
    return GATE.format(judge=said, rules=rules, more=more, role=role)


def test_a_judge_is_an_address_a_model_a_rubric_and_labels(load, tmp_path):
    keys = "floor: 0.8, api_key_env: KEY, extra_body: {effort: low}, max_tokens: 99"
    found = load(gate(f"{JUDGE}, {keys}"), files=False)
    judge = found.policy.judge
    assert (judge.model, judge.rubric, judge.floor, judge.max_tokens) == ("judge", "The right answer wins.", 0.8, 99)
    assert (judge.served.endpoint, judge.served.api_key_env) == ("http://127.0.0.1:3/v1", "KEY")
    assert judge.served.extra_body == '{"effort": "low"}'
    assert found.labels == tmp_path / "labels.jsonl"
    assert load(gate(None, QUALITY)).policy.judge is None


def test_a_budget_bounds_a_judge_too_at_its_own_price_or_the_budgets(load):
    here = GATE.replace("endpoint: http://127.0.0.1:1/v1, model: b", "model: reference")
    here = here.replace("endpoint: http://127.0.0.1:2/v1, model: v{role}", "quantize: int8")

    def priced(judge: str, budget: str):
        text = here.format(judge=f"judge: {{{JUDGE}{judge}}}", rules=f"{QUALITY}, {WIN}", more="")
        return load(f"{text}budget: {{{budget}}}\n", files=False).policy.judge.served.price

    assert priced(", price: {answer: 2}", "max_cost: 5, price: {answer: 3}") == Price(answer=2.0)
    assert priced("", "max_cost: 5, price: {answer: 3}") == Price(answer=3.0)
    assert priced("", "max_tokens_total: 5") is None
    with pytest.raises(UsageError, match=r"`max_cost` needs the price of the judge: add `price: \{prompt"):
        priced("", "max_cost: 5")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"rules": WIN}, "a win alone approves nothing; add one such as {metric: exact_match"),
        ({"rules": f"{{metric: f1, max_drop: 0.02, tier: advisory}}, {WIN}"}, "a win alone approves nothing"),
        ({"judge": None}, "a rule on judge.win needs a judge"),
        ({"rules": QUALITY}, "no rule asks this judge"),
        ({"more": ", stop: early"}, "a judge is asked behind them"),
        ({"rules": f"{QUALITY}, {{metric: judge.win, min: 0.5}}"}, "a rule on judge.win needs one bound, `max_drop`"),
        ({"judge": JUDGE.replace("rubric: The right answer wins.", "rubric: ' '")}, "`judge.rubric` is empty"),
        ({"judge": f"{JUDGE}, floor: 0.5"}, "floor"),
        ({"judge": f"{JUDGE}, stream: true"}, "stream"),
        ({"judge": JUDGE.replace("endpoint: http", "serve: 'x {port} http").replace("3/v1", "3/v1'")}, "serve"),
        ({"judge": JUDGE.replace("endpoint: http://127.0.0.1:3/v1, ", "")}, "`judge.endpoint` is missing"),
        ({"judge": JUDGE.replace(", labels: labels.jsonl", "")}, "labels"),
        ({"judge": f"{JUDGE}, api_key_env: sk-1234"}, "must be the NAME of an environment variable"),
        ({"judge": f"{JUDGE}, extra_headers: {{Authorization: x}}"}, "keys must not stand in a file"),
        ({"judge": f"{JUDGE}, extra_body: {{temperature: 1}}"}, "`extra_body` must not hold `temperature`"),
        ({"judge": f"{JUDGE}, ruberic: x"}, "ruberic"),
    ],
)  # fmt: skip
def test_what_a_judge_cannot_be_is_refused_with_what_to_write(load, keys, said):
    with pytest.raises(UsageError) as refused:
        load(gate(**keys), files=False)
    assert said in str(refused.value)
    assert "sk-1234" not in str(refused.value)
