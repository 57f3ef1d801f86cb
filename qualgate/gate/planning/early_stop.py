"""Predict what stopping early saves: cases until an identical variant is settled, and until one that loses twice the
margin is.

Outcomes are drawn as in `planning.outcomes`, in one seeded order of cases along which each rule's capital grows. The
test of the baseline's rate uses all cases, though a look has fewer. A rule that waits for every case (see `gate.early`)
has the rates of its one test. Not modelled: breaks by chance on the way to an approval, and cut answers of the
baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.advice import ENOUGH
from qualgate.gate.early import in_sequence, planned_looks, presumed_of, sensitivity
from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.change import Change
from qualgate.gate.planning.from_earlier_run.by_metric import jointly
from qualgate.gate.planning.outcomes import Columns, outcome_chances, shape_of
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.power import Key, Prediction, surely_right
from qualgate.gate.rules import Slice
from qualgate.records import Policy, RunEvidence
from qualgate.stats.betting import capital
from qualgate.stats.intervals import independent_clusters

DRAWS = 200
_LATE = 2_000  # of the rules that wait


@dataclass(frozen=True, slots=True, kw_only=True)
class UntilSettled:
    """How soon looks settle a policy, and with which rates."""

    approve: float  # P(approve | identical) by these tests, which looking makes weaker than one test of all cases
    identical: float  # answers of each arm, on average
    block: float  # P(block | twice the smallest margin of a critical rule, everywhere)
    twice: float  # answers of each arm until then, likewise
    of: int
    looks: int
    waiting: tuple[str, ...]  # ids of rules that keep an approval waiting until every case is in
    repeats: int = 1  # answers to each case

    @property
    def decidable(self) -> bool:
        """Whether an identical variant is approved often enough."""
        return self.approve >= ENOUGH


def until_settled(
    sets: Sequence[PlannedSet],
    policy: Policy,
    assumed: Assumed | None = None,
    *,
    earlier: RunEvidence | None = None,
    draws: int = DRAWS,
    seed: int = 0,
) -> UntilSettled:
    """Simulate the looks. policy: its predictable part, with planned looks. earlier: as in `plan_policy`. The same
    arguments give the same numbers."""
    stop, assumed = policy.stop, assumed or Assumed()
    assert stop is not None, "a policy that stops early"
    model = Prediction(sets=tuple(sets), policy=policy, assumed=assumed, draws=_LATE, seed=seed, earlier=earlier)
    order, looks = _Order.of(sets, seed), np.array(stop.looks)
    sequential = [slice_ for slice_ in model.slices if in_sequence(slice_.rule) and slice_.rule.tier != "advisory"]
    critical = [slice_ for slice_ in sequential if slice_.rule.tier == "critical"]
    waiting = [s.rule.id for s in model.slices if s.rule.tier != "advisory" and not in_sequence(s.rule)]
    proven, broken = _answers_until(model, sequential, order, draws, seed)
    needed = np.max([np.zeros(draws), *(proven[slice_] for slice_ in critical)], axis=0)
    settled = np.full(draws, order.total) if waiting else np.max([*proven.values()], axis=0)
    late = [slice_ for slice_ in model.critical if slice_ not in critical]
    late_approve, late_block = model.rates(late) if late else (1.0, 0.0)

    def at_look(answers: NDArray) -> float:
        """Mean answers at the first look that has so many."""
        return float(looks[np.minimum(np.searchsorted(looks, answers), len(looks) - 1)].mean())

    return UntilSettled(
        approve=float((needed <= order.total).mean()) * late_approve * jointly(model.measured),
        identical=at_look(settled),
        block=max(float((broken <= order.total).mean()), late_block),
        twice=at_look(broken),
        of=order.total,
        looks=len(looks),
        waiting=tuple(dict.fromkeys(waiting)),
        repeats=max(planned_set.repeats for planned_set in sets),
    )


def _answers_until(
    model: Prediction, sequential: Sequence[Slice], order: _Order, draws: int, seed: int
) -> tuple[dict[Slice, NDArray], NDArray]:
    """[draws] answers until each slice is proven for an identical variant, and until any critical one is broken for one
    that loses twice the margins; more than all answers if that never happens."""
    never = np.full(draws, order.total + 1)
    large_enough = [slice_ for slice_ in sequential if not model.too_few(slice_)]
    critical = [slice_ for slice_ in large_enough if slice_.rule.tier == "critical"]
    same = _Course.of(model, large_enough, order, {}, draws, [seed, 0])
    worse = _Course.of(model, critical, order, model.twice, draws, [seed, 1])
    alpha = model.policy.alpha
    proven = dict.fromkeys(sequential, never) | same.settled(beyond=False, alpha=alpha)
    broken = worse.settled(beyond=True, alpha=alpha / model.family("critical"))
    return proven, np.min([never, *broken.values()], axis=0)


def until_settled_after(
    change: Change, assumed: Assumed | None = None, *, earlier: RunEvidence | None = None
) -> UntilSettled:
    """`until_settled` after the change, with newly planned looks."""
    stop = change.policy.stop
    assert stop is not None, "a policy that stops early"
    sizes = (
        size * planned_set.repeats
        for planned_set in change.sets
        for size in planned_set.clusters or (1,) * planned_set.cases
    )
    looks = planned_looks(tuple((("", "", 0),) * size for size in sizes), change.policy)
    return until_settled(change.sets, replace(change.policy, stop=replace(stop, looks=looks)), assumed, earlier=earlier)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Clusters of all sets in one random order."""

    places: Mapping[str, NDArray]  # of each cluster of an evalset
    answers: NDArray  # that are in with the cluster at each place

    @classmethod
    def of(cls, sets: Sequence[PlannedSet], seed: int) -> _Order:
        """Shuffle the clusters of all sets. seed: of the permutation."""
        sizes = [
            np.array(planned_set.clusters or (1,) * planned_set.cases) * planned_set.repeats for planned_set in sets
        ]
        order = np.random.default_rng([seed, 7]).permutation(sum(map(len, sizes)))
        places = np.argsort(order)
        ends = np.cumsum([len(each) for each in sizes])
        return cls(
            places={
                planned_set.name: cluster_places
                for planned_set, cluster_places in zip(sets, np.split(places, ends[:-1]), strict=True)
            },
            answers=np.concatenate(sizes)[order].cumsum(),
        )

    @property
    def total(self) -> int:
        return int(self.answers[-1]) if len(self.answers) else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """Drawn outcomes by slice along the order; arrays over the clusters in which the slice has an answer."""

    policy: Policy
    order: _Order
    places: Mapping[Slice, NDArray]
    sizes: Mapping[Slice, NDArray]  # answers of the slice
    net: Mapping[Slice, NDArray]  # [draws, clusters] lost − gained
    right: Mapping[Slice, NDArray]  # [draws] answers that the baseline got right, of all

    @classmethod
    def of(
        cls,
        model: Prediction,
        slices: Sequence[Slice],
        order: _Order,
        losses: Mapping[Key, float],
        draws: int,
        stream: Sequence[int],
    ) -> _Course:
        """Draw every cluster's outcomes once, and lay out each slice's clusters in their random order.

        losses: extra P(lost) by outcome and evalset. stream: the same stream gives the same draws.
        """
        parts: dict[Slice, list[tuple[NDArray, ...]]] = {slice_: [] for slice_ in slices}
        for key, sharing in model.by_key(slices).items():
            planned_set = next(planned_set for planned_set in model.sets if planned_set.name == key[1])
            views = [model.view(slice_, planned_set) for slice_ in sharing]
            columns = Columns.of(
                (shape_of(kind, views, planned_set.repeats) for kind in planned_set.each()),
                model.assumed,
                planned_set.repeats,
            )
            generator = np.random.default_rng([*stream, *"\0".join(key[:2]).encode("utf-8", "surrogatepass")])
            cells = outcome_chances(*key[:2], losses.get(key[:2], 0.0), model.assumed)
            lost, gained, right = columns.draw(cells, draws, generator)
            for view, slice_ in enumerate(sharing):
                view_columns, starts = columns.of_view(view)
                net = np.add.reduceat((lost - gained)[:, view_columns], starts, axis=1)
                home, sizes = columns.home[view_columns][starts], np.add.reduceat(columns.sizes[view_columns], starts)
                parts[slice_].append(
                    (order.places[planned_set.name][home], sizes, net, right[:, view_columns].sum(axis=1))
                )
        places, sizes, net, total = {}, {}, {}, {}
        for slice_, of_sets in parts.items():
            columns_of = [np.concatenate([each[index] for each in of_sets], axis=-1) for index in range(3)]
            along = np.argsort(columns_of[0])
            places[slice_], sizes[slice_], net[slice_] = (each[..., along] for each in columns_of)
            total[slice_] = np.sum([each[3] for each in of_sets], axis=0)
        return cls(policy=model.policy, order=order, places=places, sizes=sizes, net=net, right=total)

    def settled(self, *, beyond: bool, alpha: float) -> dict[Slice, NDArray]:
        """[draws] answers until a slice is proven (beyond: broken); more than all if it never is."""
        return {slice_: self._settled(slice_, beyond, alpha) for slice_ in self.places}

    def _settled(self, slice_: Slice, beyond: bool, alpha: float) -> NDArray:
        """Return, for each draw, the answers after which the slice's test is decided; one more than all if it never is.

        beyond: test for a block, else for a proof, which also needs a baseline that is surely right often enough.
        """
        margin, sizes = slice_.rule.max_drop or 0.0, self.sizes[slice_]
        path = capital(
            self.net[slice_], margin, beyond=beyond, sizes=sizes, largest=float(sizes.max()),
            presumed=presumed_of(self.policy, margin, sizes.tolist()),
        )  # fmt: skip
        crossed = path >= -np.log(alpha)
        if not beyond:
            right = self.right[slice_] / sizes.sum()
            alpha = sensitivity(self.policy)
            crossed &= surely_right(right, independent_clusters(sizes, alpha), margin, alpha)[:, None]
        answers = self.order.answers[self.places[slice_]][np.argmax(crossed, axis=1)]
        return np.where(crossed.any(axis=1), answers, self.order.total + 1)
