"""What a run's requests came to, counted by several processes in one file."""

from __future__ import annotations

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from qualgate.errors import InfrastructureError
from qualgate.records import Budget, Price, Spent
from qualgate.served.faults import BudgetSpent
from qualgate.served.ledger import Ledger

PRICE = Price(prompt=1.0, answer=4.0)


def test_what_is_claimed_settled_and_left_open_adds_up_as_an_independent_sum(tmp_path):
    drawn, ledgers = random.Random(7), [Ledger(tmp_path / "spent", Budget()) for _ in range(3)]
    prompt, answer, requests = 0, 0, 0
    for _ in range(300):
        ledger, most, arm = drawn.choice(ledgers), (drawn.randint(0, 50), drawn.randint(0, 50)), drawn.choice("ab")
        name = ledger.claim(arm, PRICE, *most)
        if drawn.random() < 0.8:  # else its process was killed
            most = drawn.randint(0, 99), drawn.randint(0, 99)
            drawn.choice(ledgers).settle(name, arm, PRICE, *most, 0)
        prompt, answer, requests = prompt + most[0], answer + most[1], requests + 1
    for ledger in (*ledgers, Ledger(tmp_path / "spent", Budget())):
        total = sum(ledger.spent().values(), Spent())
        assert (total.prompt, total.answer, total.requests) == (prompt, answer, requests)
        assert total.cost == pytest.approx((prompt + 4 * answer) / 1e6)


def test_claims_of_many_at_once_never_go_beyond_the_budget(tmp_path):
    def ask(seed: int) -> int:
        ledger, drawn, refused = Ledger(tmp_path / "spent", Budget(max_tokens=1000)), random.Random(seed), 0
        for _ in range(60):
            try:
                name = ledger.claim("a", None, drawn.randint(1, 10), 10)
                ledger.settle(name, "a", None, 5, 2, 0)
            except BudgetSpent:
                refused += 1
        return refused

    with ThreadPoolExecutor(4) as several:
        refused = list(several.map(ask, range(4)))
    assert sum(refused) > 0
    total = Ledger(tmp_path / "spent", Budget()).spent()["a"]
    assert 980 <= total.tokens <= 1000
    assert total.requests == 240 - sum(refused)


def test_what_does_not_fit_is_refused_with_what_is_spent_and_what_to_do(tmp_path):
    ledger = Ledger(tmp_path / "spent", Budget(max_cost=0.5, currency="EUR"))
    ledger.settle(ledger.claim("a", PRICE, 1000, 90_000), "a", PRICE, 1000, 90_000, 0)
    with pytest.raises(BudgetSpent) as refused:
        ledger.claim("b", PRICE, 0, 50_000)
    said = "the budget is spent: 0.361 of `max_cost: 0.5` EUR, and the next request to b may cost 0.2. Raise it"
    assert str(refused.value).startswith(said)
    ledger.claim("b", PRICE, 0, 30_000)  # a smaller one fits
    with pytest.raises(BudgetSpent, match="the next batch of b may cost"):
        ledger.check_room("b", PRICE, 0, 30_000)
    assert ledger.spent()["b"] == Spent(requests=1, answer=30_000, estimated=30_000, cost=0.12, currency="EUR")


def test_a_line_that_a_killed_process_did_not_end_is_read_as_nothing(tmp_path):
    path = tmp_path / "spent"
    first = Ledger(path, Budget())
    name = first.claim("a", None, 3, 4)
    with path.open("a") as file:
        file.write('{"arm": "a", "settled": "')
    second = Ledger(path, Budget())
    assert second.spent()["a"].tokens == first.spent()["a"].tokens == 7
    second.settle(name, "a", None, 1, 1, 0)
    assert first.spent()["a"].tokens == second.spent()["a"].tokens == 2


@pytest.mark.parametrize(
    "line", ['{"arm": "a", "claim": "x", "prompt": -500, "answer": 0}', '{"arm": "a", "prompt": 1e9, "answer": 0}',
             '{"arm": "a", "settled": "x", "prompt": 1, "answer": 1, "cost": -5}', "[]", "\x00\xff", "{"],
)  # fmt: skip
def test_lines_that_are_no_count_take_nothing_off(line, tmp_path):
    ledger = Ledger(tmp_path / "spent", Budget())
    ledger.claim("a", None, 3, 4)
    with (tmp_path / "spent").open("a") as file:
        file.write(line + "\n")
    assert ledger.spent() == {"a": Spent(requests=1, prompt=3, answer=4, estimated=7)}


def test_a_resumed_run_counts_on_and_another_run_begins_anew(tmp_path):
    path = tmp_path / "spent"
    ledger = Ledger(path, Budget())
    ledger.begin("run-1", {})
    ledger.claim("a", None, 3, 4)
    resumed = Ledger(path, Budget())
    resumed.begin("run-1", {"a": Spent(requests=9, prompt=900)})
    assert resumed.spent()["a"].tokens == 7
    resumed.begin("run-2", {})
    assert resumed.spent() == {}
    assert ledger.spent() == {}
    path.unlink()  # what the store knows stands in for it
    lost = Ledger(path, Budget())
    known = Spent(requests=9, prompt=900, answer=8, estimated=1, cost=0.5)
    lost.begin("run-2", {"a": known})
    assert lost.spent() == {"a": known}


def test_the_file_is_lines_that_a_person_can_read(tmp_path):
    ledger = Ledger(tmp_path / "spent", Budget())
    ledger.settle(ledger.claim("awq", PRICE, 12, 8), "awq", PRICE, 11, 2, 0)
    claimed, settled = map(json.loads, (tmp_path / "spent").read_text().splitlines())
    assert (claimed["arm"], claimed["prompt"], claimed["answer"]) == ("awq", 12, 8)
    assert settled == {"arm": "awq", "settled": claimed["claim"], "prompt": 11, "answer": 2, "estimated": 0,
                       "cost": 1.9e-05}  # fmt: skip


def test_where_nothing_can_be_counted_nothing_is_sent(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match=r"cannot be kept .*, so none is sent"):
        Ledger(tmp_path / "file" / "spent", Budget()).claim("a", None, 1, 1)
