"""What a run will take: as an earlier run measured it, else guessed, else not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.pipeline import forecast as forecasting
from qualgate.pipeline.forecast import DECODING, LOADING, READING, Past, forecast
from qualgate.records import (
    ArmIdentity,
    ArmSpec,
    DraftSource,
    Evalset,
    Job,
    ModelFacts,
    Plan,
    Policy,
    Prices,
    Prompt,
    Rule,
    Speculation,
    UnitKey,
)
from qualgate.store.queries import AnswerTime

CPU = "qualgate 1, torch 2, transformers 5, cpu float32"
PRICES = Prices(version="7", currency="EUR", prompt_token=0.01, output_token=0.1)
SECONDS = replace(PRICES, device_second=6.0, concurrency=3)


@pytest.fixture(autouse=True)
def probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe of 1 GFLOP a second."""
    monkeypatch.setattr(forecasting, "_matmul_flops", lambda: 1e9)


def planned(prices: Prices | None = None, engine: str = CPU, drafted: bool = True) -> Plan:
    """Two arms, each two jobs of two cases: 10 tokens of prompt, 20 at most of answer."""
    arms = (ArmSpec(name="baseline", model="m"), ArmSpec(name="int4", model="m"))
    jobs = [
        Job(
            index=index,
            arm=arm,
            prompts=tuple(
                Prompt(key=key(arm.name, 2 * index + row), case_hash="h", token_ids=(1,) * 10, max_new_tokens=20)
                for row in range(2)
            ),
            artifact="",
            drafted=drafted and not arm.is_baseline,
        )
        for arm in arms
        for index in range(2)
    ]
    identity = ArmIdentity(weights="w", config="c", tokenizer="t", template="p", sampling="s", engine=engine)
    return Plan(
        key="k", gate_file="", policy=Policy(rules=(Rule(metric="exact_match", max_drop=0.1),), prices=prices),
        arms=arms, identities={arm.name: identity for arm in arms},
        evalsets=(Evalset(name="s", version="1", sha256="", metrics=("exact_match",)),), jobs=tuple(jobs), artifacts="",
        models={"m": ModelFacts(method="", parameters=1_000_000)},
    )  # fmt: skip


def key(arm: str, case: int) -> UnitKey:
    return UnitKey(arm, "s", f"c{case}")


def took(arm: str, *seconds: float, engine: str = CPU, drafted: bool = False) -> dict[UnitKey, AnswerTime]:
    return {
        key(arm, case): AnswerTime(case_hash="h", engine=engine, seconds=each, tokens=4, drafted=drafted)
        for case, each in enumerate(seconds)
    }


def test_a_batch_takes_as_long_as_its_slowest_answer_and_workers_share_them() -> None:
    past = Past(run="r1", times=took("baseline", 1.0, 5.0, 2.0, 3.0) | took("int4", 1, 1, 1, 1, drafted=True))
    found = forecast(planned(), 2, past)
    assert [row.seconds for row in found.arms] == [(5 + 3 + LOADING) / 2, (1 + 1 + LOADING) / 2]
    assert [row.expected_tokens for row in found.arms] == [16, 16]
    assert (found.run, found.seconds) == ("r1", (5 + 3 + 1 + 1 + 2 * LOADING) / 2)


def test_batches_that_no_run_has_seen_take_what_the_others_do() -> None:
    found = forecast(planned(), 1, Past(run="r1", times=took("baseline", 1.0, 5.0)))
    assert found.arms[0].seconds == 5 + 5 + LOADING
    assert [row.measured for row in found.arms] == [True, False]


@pytest.mark.parametrize(
    "other",
    [
        took("baseline", 9, 9, engine=CPU.replace("cpu", "cuda")),
        took("baseline", 9, 9, drafted=True),
        {at: replace(one, case_hash="another") for at, one in took("baseline", 9, 9).items()},
    ],
    ids=["device", "drafting", "case"],
)
def test_answers_that_came_about_otherwise_measure_nothing(other: dict[UnitKey, AnswerTime]) -> None:
    found = forecast(planned(), 1, Past(run="r1", times=other))
    assert (found.run, found.arms[0].measured) == ("", False)
    # 2 FLOP a weight, for 40 tokens read and for 40 that are decoded at a quarter of the speed
    assert found.arms[0].seconds == pytest.approx(2e6 * (40 / READING + 40 / DECODING) / 1e9 + LOADING)


def test_a_drafted_answer_is_guessed_to_be_read_and_a_fifth_of_it_decoded() -> None:
    drafted = forecast(planned(drafted=True), 1).arms[1].seconds
    assert drafted == pytest.approx(2e6 * ((40 + 40) / READING + 8 / DECODING) / 1e9 + LOADING)


def test_of_a_gpu_the_probe_knows_nothing() -> None:
    found = forecast(planned(engine=CPU.replace("cpu", "cuda")), 1)
    assert [row.seconds for row in found.arms] == [None, None]
    assert found.seconds is None


def test_money_follows_tokens_and_is_bounded_by_their_limits() -> None:
    found = forecast(planned(PRICES), 1)
    assert found.arms[0].cost == pytest.approx(40 * 0.01 + 40 * 0.1)
    assert found.arms[0].most == pytest.approx(40 * 0.01 + 80 * 0.1)
    assert found.cost == pytest.approx(2 * (0.4 + 4))
    assert forecast(planned(), 1).cost is None


def test_seconds_that_are_charged_cost_what_they_took_and_are_unknown_before() -> None:
    assert forecast(planned(SECONDS), 1).cost is None
    past = Past(run="r1", times=took("baseline", 1.0, 5.0, 2.0, 4.0))
    found = forecast(planned(SECONDS), 1, past)
    assert found.arms[0].cost == pytest.approx(40 * 0.01 + 16 * 0.1 + 12 * 6 / 3)
    assert found.arms[0].most is None
    assert found.cost is None, "the other arm's is not known, and a part is not the whole"


def test_who_drafts_stands_beside_the_weights():
    plan = planned(drafted=False)
    drafting = replace(plan.arms[1], speculation=Speculation(draft=DraftSource(kind="ngram"), tokens=5))
    jobs = tuple(replace(job, arm=drafting) if job.arm == plan.arms[1] else job for job in plan.jobs)
    rows = forecast(replace(plan, arms=(plan.arms[0], drafting), jobs=jobs), 1).arms
    assert [row.weights for row in rows] == ["bfloat16", "bfloat16 + ngram, 5 tokens"]
    assert rows[1].seconds == rows[0].seconds  # what a draft saves is measured, not guessed
