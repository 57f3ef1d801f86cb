"""What a run's requests to servers would come to at most, by the way in which they are asked."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from qualgate.pipeline.spending import foresee
from qualgate.records import ArmSpec, Budget, Job, Policy, Price, Prompt, Served, UnitKey

LONG, MOST = 30, 10


def plan_of(*, artifact: str = "", drafted: bool = False, price: Price | None = None):
    served = ArmSpec(name="v", model="m", served=Served(endpoint="http://x/v1", tokenizer="t", price=price))
    here = ArmSpec(name="baseline", model="m")
    jobs = []
    for arm in (here, served):
        prompts = tuple(
            Prompt(key=UnitKey(arm.name, "s", f"{n}"), case_hash="h", token_ids=(1,) * LONG, max_new_tokens=MOST)
            for n in range(4)
        )
        jobs.append(Job(index=0, arm=arm, prompts=prompts, artifact=artifact, drafted=drafted))
    return SimpleNamespace(arms=(here, served), jobs=tuple(jobs), policy=Policy(rules=()))


@pytest.mark.parametrize(
    ("how", "read", "said"),
    [
        ({}, 4 * LONG, 4 * MOST),
        ({"artifact": "a"}, 4 * LONG + 4 * (LONG + MOST), 4 * MOST + 4),  # its server reads the baseline's answers
        # and each is asked from where it leaves the baseline's, one twice more, and all plainly where that fails
        ({"artifact": "a", "drafted": True}, 14 * LONG + 8 * MOST, 10 * MOST + 4),
    ],
)  # fmt: skip
def test_the_most_holds_every_request_of_its_way(how, read, said):
    gate = SimpleNamespace(budget=Budget(), store_url="")
    found = foresee(gate, plan_of(**how, price=Price(prompt=2.0, answer=4.0)), "")  # type: ignore[arg-type]
    assert [one.arm for one in found.arms] == ["v"]  # the other is generated here
    assert (found.most.prompt, found.most.answer) == (read, said)
    assert found.most.cost == pytest.approx((2 * read + 4 * said) / 1e6)
    assert found.expected is None
    assert foresee(gate, plan_of(**how), "").most.cost is None  # type: ignore[arg-type]
