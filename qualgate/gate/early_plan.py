"""What stopping early is worth, told before anything is generated: cases until an identical variant is settled, and
until one that loses twice the margin is.

Outcomes are drawn as `gate.outcomes` draws them, in one seeded order of cases; each rule's capital is followed along
it. Whether the baseline is right often enough is asked of all cases, though a look has fewer of them. Left out: that a
rule may be broken by chance on the way to an approval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.changes import Change
from qualgate.gate.early import in_sequence, planned_looks, presumed_of, sensitivity
from qualgate.gate.outcomes import Assumed, PlannedSet, draw_clusters, outcome_chances
from qualgate.gate.prediction import ENOUGH, surely_right
from qualgate.gate.rules import Slice, check_policy
from qualgate.records import Policy
from qualgate.stats.intervals import independent_trials
from qualgate.stats.sequential import capital

DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyRates:
    approve: float  # P(approve | identical) by these tests, which looking makes weaker than one test of all cases
    identical: float  # questions of each arm, on average
    block: float  # P(block | twice the smallest margin of a critical rule, everywhere)
    twice: float
    of: int
    looks: int
    waiting: tuple[str, ...]  # ids of rules that keep an approval waiting until every case is in

    @property
    def decidable(self) -> bool:
        return self.approve >= ENOUGH


def early_rates(
    sets: Sequence[PlannedSet],
    policy: Policy,
    assumed: Assumed | None = None,
    *,
    waiting: Sequence[str] = (),
    draws: int = DRAWS,
    seed: int = 0,
) -> EarlyRates:
    """policy: what is foreseeable of it, with its planned looks. waiting: ids of critical and supporting rules that
    were left out. Same arguments, same numbers."""
    stop, assumed = policy.stop, assumed or Assumed()
    assert stop is not None, "a policy that stops early"
    slices = check_policy(policy, {one.name: one.metrics for one in sets})
    waits = (*waiting, *(p.rule.id for p in slices if p.rule.tier != "advisory" and not in_sequence(p.rule)))
    asked = [part for part in slices if in_sequence(part.rule)]
    order = _Order.of(sets, seed)
    looks = np.array(stop.looks)

    def questions(losses: Mapping[tuple[str, str], float], part: Slice, *, beyond: bool, alpha: float) -> NDArray:
        """[draws] questions that are in when the slice is proven (beyond: broken); more than all when it never is, as
        where an evalset of it has no case that counts."""
        if not all(order.sets[name].cases for name in part.evalsets):
            return np.full(draws, order.total + 1)
        mine = order.of_sets(part.evalsets)
        drawn = {
            name: order.drawn(name, part.rule.metric, losses, assumed, draws, [seed, int(beyond)])
            for name in part.evalsets
        }
        loss = np.stack([drawn[str(order.names[at])].net[:, order.numbers[at]] for at in mine], axis=1)
        margin, sizes = part.rule.max_drop or 0.0, order.sizes[mine]
        path = capital(
            loss, margin, beyond=beyond, sizes=sizes, largest=float(sizes.max()),
            presumed=presumed_of(policy, margin, sizes.tolist()),
        )  # fmt: skip
        crossed = path >= -np.log(alpha)
        if not beyond:
            right = sum(one.right for one in drawn.values()) / sizes.sum()
            trials = independent_trials(sizes, np.arange(len(sizes)))
            crossed &= surely_right(right, trials, margin, sensitivity(policy))[:, None]
        seen = order.questions[mine][np.argmax(crossed, axis=1)]
        return np.where(crossed.any(axis=1), seen, order.total + 1)

    proven = [questions({}, p, beyond=False, alpha=policy.alpha) for p in asked if p.rule.tier != "advisory"]
    critical = [part for part in asked if part.rule.tier == "critical"]
    needed = np.max([questions({}, p, beyond=False, alpha=policy.alpha) for p in critical], axis=0)
    settled = np.max(proven, axis=0) if not waits else np.full(draws, order.total)
    twice: dict[tuple[str, str], float] = {}
    for part in critical:
        for name in part.evalsets:
            key = (part.rule.metric, name)
            twice[key] = min(twice.get(key, 1.0), 2 * (part.rule.max_drop or 0.0))
    strict = policy.alpha / sum(part.rule.tier == "critical" for part in slices)
    broken = np.min([questions(twice, part, beyond=True, alpha=strict) for part in critical], axis=0)

    def at_look(seen: NDArray) -> float:
        return float(looks[np.minimum(np.searchsorted(looks, seen), len(looks) - 1)].mean())

    return EarlyRates(
        approve=float((needed <= order.total).mean()),
        identical=at_look(settled),
        block=float((broken <= order.total).mean()),
        twice=at_look(broken),
        of=order.total,
        looks=len(looks),
        waiting=tuple(dict.fromkeys(waits)),
    )


def rates_after(
    change: Change, sets: Sequence[PlannedSet], assumed: Assumed | None = None, *, waiting: Sequence[str] = ()
) -> EarlyRates:
    """`early_rates` of the policy and the sets once the change is made, its looks laid out anew."""
    stop = change.policy.stop
    assert stop is not None, "a policy that stops early"
    grown = [one.grown(change.cases[one.name]) for one in sets]
    sizes = (size for one in grown for size in one.clusters or (1,) * one.cases)
    looks = planned_looks(tuple((("", "", 0),) * size for size in sizes))
    return early_rates(grown, replace(change.policy, stop=replace(stop, looks=looks)), assumed, waiting=waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawn:
    net: NDArray  # [draws, clusters of the set] lost − gained
    right: NDArray  # [draws] cases that the baseline got right


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Clusters of all sets in one random order. Arrays: [clusters]."""

    sets: Mapping[str, PlannedSet]
    names: NDArray  # evalset
    numbers: NDArray  # of the cluster in it
    sizes: NDArray
    questions: NDArray  # that are in with it

    @classmethod
    def of(cls, sets: Sequence[PlannedSet], seed: int) -> _Order:
        each = [
            (one.name, number, size) for one in sets for number, size in enumerate(one.clusters or (1,) * one.cases)
        ]
        shuffled = [each[at] for at in np.random.default_rng([seed, 7]).permutation(len(each))]
        names, numbers = np.array([one[0] for one in shuffled]), np.array([one[1] for one in shuffled], int)
        sizes = np.array([one[2] for one in shuffled], int)
        return cls(
            sets={one.name: one for one in sets}, names=names, numbers=numbers, sizes=sizes, questions=sizes.cumsum()
        )

    @property
    def total(self) -> int:
        return int(self.sizes.sum())

    def of_sets(self, names: Sequence[str]) -> NDArray:
        return np.flatnonzero(np.isin(self.names, names))

    def drawn(
        self,
        name: str,
        metric: str,
        losses: Mapping[tuple[str, str], float],
        assumed: Assumed,
        draws: int,
        stream: Sequence[int],
    ) -> _Drawn:
        """The same for every rule on this metric and set."""
        generator = np.random.default_rng([*stream, *(metric + "\0" + name).encode("utf-8", "surrogatepass")])
        cells = outcome_chances(metric, name, losses.get((metric, name), 0.0), assumed)
        sizes = np.array(self.sets[name].clusters or (1,) * self.sets[name].cases)
        lost, gained, right = draw_clusters(sizes, cells, draws, generator)
        return _Drawn(net=lost - gained, right=right.sum(axis=1))
