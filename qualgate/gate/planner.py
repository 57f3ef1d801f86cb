"""Could this policy decide at all? Asked before anything is generated.

For each rule, and for the whole policy jointly: how often an identical variant would be approved, and how often a
variant that loses twice the margin would be blocked. A policy that would rarely approve an identical variant is told
with the changes that mend it, each tried out in the same way.

**How.** Paired outcomes (lost, gained, both right, both wrong) are drawn for each metric and evalset; every rule then
decides on the sums over its own sets, as the gate would, so rules on the same cases agree or err together. A rule's
decision on counts is a comparison of its score with the exact test's threshold, which costs nothing; sets with
clusters are drawn cluster by cluster. What is assumed is said: the disagreement of an identical variant (from an
earlier run, else `ASSUMED_DISAGREEMENT`), how often the baseline is right, and that different metrics of one set flip
independently; real ones rise and fall together, which can only help an approval by all of them. A loss adds lost
answers and leaves the gained ones.

Only quality rules are predicted. A rule on drift or latency is checked for the cases that it needs to say anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from qualgate.gate.measure import LEAST_BASELINE_RATE, SENSITIVITY_ALPHA, UNSEEN_KL
from qualgate.gate.rules import Slice, check_policy
from qualgate.metrics import DROP_BELOW, MARGINS_OF_BASELINE, METRICS
from qualgate.records import Evalset, Policy, Rule, RunEvidence
from qualgate.stats.intervals import binomial_lower, independent_trials, normal_quantile
from qualgate.stats.latency import clusters_needed
from qualgate.stats.paired import MIN_CLUSTERS
from qualgate.stats.power import MOST_PAIRS, approved, blocked, chance_to_approve, evidence_threshold, pairs_to_approve
from qualgate.stats.region import evidence
from qualgate.stats.sequential import ASSUMED_DISAGREEMENT

ASSUMED_BASELINE = 0.8  # share of a set's cases that the baseline gets right
ASSUMED_CORRELATION = 0.1  # of the flips of two cases of one cluster
ENOUGH = 0.8  # a policy that approves an identical variant more rarely is told to change
DRAWS = 20_000
_CLUSTERED_DRAWS = 4_000
_CLUSTERED_CELLS = 1_500_000  # draws x clusters of a simulation with clusters
_LEAST_DRAWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSet:
    """An evalset as the planner sees it. clusters: cases of each cluster; empty when every case stands for itself."""

    name: str
    metrics: tuple[str, ...]
    cases: int
    clusters: tuple[int, ...] = ()

    @classmethod
    def of(cls, evalset: Evalset) -> PlannedSet:
        labels = Counter((case.cluster or case.id, case.cluster is None) for case in evalset.cases)
        clusters = tuple(labels.values()) if max(labels.values(), default=1) > 1 else ()
        return cls(name=evalset.name, metrics=evalset.metrics, cases=len(evalset.cases), clusters=clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is taken for true, by (metric, evalset); what is not listed has the default."""

    disagreement: Mapping[tuple[str, str], float] = field(default_factory=dict)
    baseline: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default_disagreement: float = ASSUMED_DISAGREEMENT
    default_baseline: float = ASSUMED_BASELINE
    source: str = "assumed: no earlier run tells"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRule:
    rule: str  # Rule.id
    slice: str
    tier: str
    n: int
    clusters: int | None
    approve: float | None  # P(proven | identical); None: not predicted
    block: float | None  # P(broken, after Holm's correction | this slice alone loses twice the margin)
    disagreement: float | None  # assumed, over the slice's cases
    needed: int | None  # cases at which an identical variant is proven in `ENOUGH` of runs; None: not known or too many
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """An edit that makes the policy decidable, with what the planner then predicts."""

    kind: str  # "more cases", "pooled endpoint", "wider margins"
    lines: tuple[str, ...]  # what to write, one line each
    cases: dict[str, int]  # by evalset
    policy: Policy
    approve: float
    block: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPolicy:
    approve: float  # P(every critical rule proven, nothing broken | identical)
    block: float  # P(block | every set loses twice the smallest margin of a critical rule on it)
    rules: tuple[PlannedRule, ...]
    changes: tuple[Change, ...]  # empty when the policy can decide, or when no change was found
    cases: dict[str, int]  # by evalset, as they are
    draws: int
    source: str  # of the assumed disagreement

    @property
    def decidable(self) -> bool:
        return self.approve >= ENOUGH

    @property
    def refused(self) -> bool:
        """Neither can it decide nor is there a change that would make it."""
        return not self.decidable and not self.changes


def foreseeable(sets: Sequence[PlannedSet], policy: Policy) -> tuple[Policy | None, tuple[str, ...]]:
    """The policy without the rules whose outcome is not simulated here, and those rules' ids.

    Left out: rules on tasks, tags, repeats, relative drops, costs and parity, and on scores that no set declares. None:
    no critical quality rule is left, so nothing can be foretold.
    """
    carried = {metric for one in sets for metric in one.metrics}

    def fits(rule: Rule) -> bool:
        metric = METRICS[rule.metric]
        plain = rule.where is None and rule.scope in ("pooled", "evalset") and rule.repeats == "mean"
        if metric.kind != "quality":
            return plain and metric.kind in ("drift", "latency")
        return plain and rule.max_drop is not None and rule.metric in carried

    left = tuple(rule for rule in policy.rules if fits(rule))
    out = tuple(rule.id for rule in policy.rules if not fits(rule))
    critical = any(rule.tier == "critical" and METRICS[rule.metric].kind == "quality" for rule in left)
    return (replace(policy, rules=left) if critical else None), out


def plan_policy(
    sets: Sequence[PlannedSet],
    policy: Policy,
    assumed: Assumed | None = None,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    search: bool = True,
) -> PlannedPolicy:
    """Rates of the whole policy and of each rule, and what to change. UsageError: a policy that does not fit the sets.

    Same arguments, same numbers. search: look for changes where it can hardly decide. `draws` shrinks where clusters
    have to be drawn one by one.
    """
    assumed = assumed or Assumed()
    model = _Model(sets=tuple(sets), policy=policy, assumed=assumed, draws=draws, seed=seed)
    approve, block, rules = model.rates()
    changes = () if approve >= ENOUGH or not search else tuple(_changes(model, rules))
    return PlannedPolicy(
        approve=approve,
        block=block,
        rules=rules,
        changes=changes,
        cases={one.name: one.cases for one in model.sets},
        draws=model.used,
        source=assumed.source,
    )


def seen_in(evidence: RunEvidence) -> Assumed:
    """Disagreement and baseline rates of an earlier run, the least of its variants': the one most like the baseline.

    One flip is added, so that none seen is not taken for none ever.
    """
    before = {(u.key.evalset, u.key.case_id, u.key.repeat): u.values for u in evidence.baseline.units}
    changed: dict[tuple[str, str], float] = {}
    right: dict[tuple[str, str], float] = {}
    for arm in evidence.variants:
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for unit in arm.units:
            base = before.get((unit.key.evalset, unit.key.case_id, unit.key.repeat), {})
            for metric in evidence.metrics.get(unit.key.evalset, ()):
                pair = base.get(metric), unit.values.get(metric)
                if pair[0] is not None and pair[1] is not None:
                    found.setdefault((metric, unit.key.evalset), []).append((pair[0], pair[1]))
        for key, pairs in found.items():
            rate = (sum(one != other for one, other in pairs) + 1) / (len(pairs) + 1)
            changed[key] = min(rate, changed.get(key, 1.0))
            right[key] = sum(one for one, _ in pairs) / len(pairs)
    return Assumed(disagreement=changed, baseline=right, source=f"as seen in run {evidence.run_id}")


# ------------------------------------------------------------------------------------------------------ simulation


@dataclass(slots=True)
class _Draw:
    """Outcomes of one metric on one set: counts of each draw, or of each draw and cluster."""

    lost: NDArray  # [draws], or [draws, clusters]
    gained: NDArray
    right: NDArray  # [draws]: cases that the baseline got right


@dataclass(slots=True)
class _Model:
    sets: tuple[PlannedSet, ...]
    policy: Policy
    assumed: Assumed
    draws: int
    seed: int
    slices: tuple[Slice, ...] = ()
    used: int = 0

    def __post_init__(self) -> None:
        self.slices = check_policy(self.policy, {one.name: one.metrics for one in self.sets})
        most = sum(len(one.clusters) or one.cases for one in self.sets) if any(s.clusters for s in self.sets) else 0
        self.used = self.draws
        if most:
            self.used = min(self.draws, _CLUSTERED_DRAWS, max(_CLUSTERED_CELLS // most, _LEAST_DRAWS))

    @property
    def quality(self) -> list[Slice]:
        return [part for part in self.slices if METRICS[part.rule.metric].kind == "quality"]

    def among(self, part: Slice) -> list[PlannedSet]:
        return [one for one in self.sets if one.name in part.evalsets]

    def clustered(self, part: Slice) -> bool:
        return any(one.clusters for one in self.among(part))

    def disagreement(self, metric: str, name: str) -> float:
        return self.assumed.disagreement.get((metric, name), self.assumed.default_disagreement)

    def baseline(self, metric: str, name: str) -> float:
        return self.assumed.baseline.get((metric, name), self.assumed.default_baseline)

    def mean(self, part: Slice, rate: Callable[[str, str], float]) -> float:
        chosen = self.among(part)
        return sum(rate(part.rule.metric, one.name) * one.cases for one in chosen) / sum(one.cases for one in chosen)

    def family(self, tier: str) -> int:
        return sum(part.rule.tier == tier for part in self.slices)

    def rates(self) -> tuple[float, float, tuple[PlannedRule, ...]]:
        sayable = {part.head: _too_few(part, self.among(part)) for part in self.slices}
        identical = self._draw({}, 0)
        proven: dict[str, NDArray] = {}
        all_proven = np.ones(self.used, bool)
        none_broken = np.ones(self.used, bool)
        for part in self.slices:
            if part.rule.tier == "critical" and sayable[part.head]:
                all_proven[:] = False
        for part in self.quality:
            within, beyond = self._decide(part, identical)
            proven[part.head] = within
            if part.rule.tier == "critical":
                all_proven &= within
            if part.rule.tier != "advisory":
                none_broken &= ~beyond
        twice: dict[tuple[str, str], float] = {}
        for part in self.quality:
            if part.rule.tier == "critical":
                for name in part.evalsets:
                    key = (part.rule.metric, name)
                    twice[key] = min(twice.get(key, 1.0), 2 * (part.rule.max_drop or 0))
        worse = self._draw(twice, 1)
        blocked = np.zeros(self.used, bool)
        for part in self.quality:
            if part.rule.tier == "critical":
                blocked |= self._decide(part, worse)[1]
        rules = tuple(self._rule(part, index, proven.get(part.head), sayable[part.head])
                      for index, part in enumerate(self.slices))  # fmt: skip
        return float((all_proven & none_broken).mean()), float(blocked.mean()), rules

    def _rule(self, part: Slice, index: int, proven: NDArray | None, note: str) -> PlannedRule:
        chosen, margin = self.among(part), part.rule.max_drop
        block = disagreement = needed = None
        if proven is not None and margin is not None:
            alone = {(part.rule.metric, name): 2 * margin for name in part.evalsets}
            block = float(self._decide(part, self._draw(alone, 2 + index, only=part))[1].mean())
            disagreement = self.mean(part, self.disagreement)
            if proven.mean() < ENOUGH and not self.clustered(part):
                needed = pairs_to_approve(margin, disagreement, ENOUGH, self.policy.alpha)
        return PlannedRule(
            rule=part.rule.id,
            slice=part.name,
            tier=part.rule.tier,
            n=sum(one.cases for one in chosen),
            clusters=sum(len(one.clusters) or one.cases for one in chosen) if self.clustered(part) else None,
            approve=None if proven is None else float(proven.mean()),
            block=block,
            disagreement=disagreement,
            needed=needed,
            note=note or ("" if proven is not None else "not predicted: decides on what is measured"),
        )

    def _draw(
        self, losses: Mapping[tuple[str, str], float], stream: int, *, only: Slice | None = None
    ) -> dict[tuple[str, str], _Draw]:
        """losses: extra P(lost) by (metric, evalset). stream: draws of the same stream are the same."""
        wanted = [only] if only else self.quality
        by_cluster = {(part.rule.metric, name) for part in wanted if self.clustered(part) for name in part.evalsets}
        pairs = sorted({(part.rule.metric, name) for part in wanted for name in part.evalsets})
        sizes = {one.name: one for one in self.sets}
        drawn = {}
        for index, key in enumerate(pairs):
            generator = np.random.default_rng([self.seed, stream, index])
            cells = outcome_chances(*key, losses.get(key, 0.0), self.assumed)
            one = sizes[key[1]]
            if key in by_cluster:
                drawn[key] = draw_clusters(one, cells, self.used, generator)
            else:
                counts = generator.multinomial(one.cases, cells, self.used)
                drawn[key] = _Draw(counts[:, 0], counts[:, 1], counts[:, 0] + counts[:, 2])
        return drawn

    def _decide(self, part: Slice, drawn: Mapping[tuple[str, str], _Draw]) -> tuple[NDArray, NDArray]:
        """[draws] proven, and [draws] broken by Holm's first step, which is where a block begins."""
        margin, alpha = part.rule.max_drop or 0.0, self.policy.alpha
        strict = alpha / self.family(part.rule.tier)
        mine = [drawn[part.rule.metric, name] for name in part.evalsets]
        right = sum(one.right for one in mine)
        cases = sum(one.cases for one in self.among(part))
        if not self.clustered(part):
            lost, gained = (sum(_by_draw(getattr(one, name)) for one in mine) for name in ("lost", "gained"))
            within = approved(lost, gained, cases, margin, alpha)
            beyond = blocked(lost, gained, cases, margin, strict)
            trials = float(cases)
        else:
            sizes = np.concatenate([np.array(one.clusters or (1,) * one.cases) for one in self._in_order(part)])
            if len(sizes) < MIN_CLUSTERS:
                return np.zeros(self.used, bool), np.zeros(self.used, bool)
            lost, gained = (np.concatenate([getattr(one, name) for one in mine], axis=1) for name in ("lost", "gained"))
            within, beyond = _decide_clustered(lost, gained, sizes, margin, alpha, strict)
            trials = independent_trials(sizes, np.arange(len(sizes)))
        return within & surely_right(np.asarray(right) / cases, trials, margin), beyond

    def _in_order(self, part: Slice) -> list[PlannedSet]:
        by_name = {one.name: one for one in self.sets}
        return [by_name[name] for name in part.evalsets]


def _by_draw(counts: NDArray) -> NDArray:
    return counts if counts.ndim == 1 else counts.sum(axis=1)  # a set drawn case by case for another rule's clusters


def outcome_chances(metric: str, name: str, loss: float, assumed: Assumed) -> NDArray:
    """P(lost, gained, both right, both wrong) of one case. loss: what P(lost) has beyond an identical variant's."""
    flips = assumed.disagreement.get((metric, name), assumed.default_disagreement)
    right = assumed.baseline.get((metric, name), assumed.default_baseline)
    gained, lost = min(flips / 2, 1 - right), min(flips / 2 + loss, right)
    cells = np.array([lost, gained, right - lost, 1 - right - gained]).clip(0)
    return cells / cells.sum()


def draw_clusters(one: PlannedSet, cells: NDArray, draws: int, generator: np.random.Generator) -> _Draw:
    """A share of a cluster's cases repeats one outcome, so that two of them correlate by `ASSUMED_CORRELATION`."""
    sizes = np.array(one.clusters or (1,) * one.cases)
    shape = (draws, len(sizes))
    copies = generator.binomial(sizes, sqrt(ASSUMED_CORRELATION), shape) if one.clusters else np.zeros(shape, int)
    outcome = np.searchsorted(np.cumsum(cells)[:3], generator.random(shape), side="right")
    rest, counts, left = sizes - copies, [], 1.0
    for index, chance in enumerate(cells[:3]):
        count = generator.binomial(rest, min(1.0, chance / left) if left > 0 else 0.0)
        rest, left = rest - count, left - chance
        counts.append(count + np.where(outcome == index, copies, 0))
    return _Draw(counts[0], counts[1], (counts[0] + counts[2]).sum(axis=1))


def _decide_clustered(
    lost: NDArray, gained: NDArray, sizes: NDArray, margin: float, alpha: float, strict: float
) -> tuple[NDArray, NDArray]:
    """`compare_clustered_pairs` for many draws at once. lost, gained: [draws, clusters]."""
    n, count = int(sizes.sum()), len(sizes)
    down, up = lost.sum(1), gained.sum(1)
    mean = (up - down) / n
    spread = np.sqrt(count / (count - 1) * np.square((gained - lost) - mean[:, None] * sizes).sum(1)) / n
    plain = np.sqrt(n / (n - 1) * np.maximum(down + up - n * mean * mean, 0)) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(spread > 0, (mean + margin) / spread, np.sign(mean + margin) * np.inf)
        wider = (spread * stdtrit(count - 1, 1 - alpha)) / (plain * stdtrit(n - 1, 1 - alpha))
    most = n / independent_trials(np.ones(n), np.repeat(np.arange(count), sizes))
    told = ((lost + gained > 0).sum(1) >= MIN_CLUSTERS) & (plain > 0)
    effect = np.where(told, np.minimum(np.maximum(np.nan_to_num(wider, nan=1.0) ** 2, 1.0), most), most)
    size = np.maximum((n / effect).astype(int), 1)
    share = size / n
    worst = np.minimum(np.ceil(down * share), size - np.floor(up * share)), np.floor(up * share)
    best = np.floor(down * share), np.minimum(np.ceil(up * share), size - np.floor(down * share))
    passes = stdtr(count - 1, -t) <= alpha, stdtr(count - 1, t) <= strict
    return (
        passes[0] & _proven_each(*worst, size, margin, alpha),
        passes[1] & _proven_each(best[1], best[0], size, -margin, strict),
    )


def _proven_each(lost: NDArray, gained: NDArray, n: NDArray, loss: float, alpha: float) -> NDArray:
    """`approved`, each draw with its own number of pairs. Of many numbers a dozen have their threshold found: it drifts
    slowly, and the others' lie between."""
    sizes = np.unique(n)
    result = np.empty(len(n), bool)
    knots = np.unique(np.geomspace(sizes[0], sizes[-1], 12).astype(int)) if len(sizes) > 12 else sizes
    thresholds = [evidence_threshold(int(knot), loss, alpha) for knot in knots] if len(sizes) > 12 else []
    for size in map(int, sizes):
        mine = n == size
        if thresholds:
            least = np.interp(size, knots, thresholds)
            result[mine] = evidence(lost[mine], gained[mine], size, loss) >= least
        else:
            result[mine] = approved(lost[mine], gained[mine], size, loss, alpha)
    return result


def surely_right(share: NDArray, trials: float, margin: float) -> NDArray:
    """Is the baseline right often enough to lose `margin`? share: of its cases, [draws]."""
    return share >= _least_share(trials, max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin))


def _least_share(trials: float, enough: float) -> float:
    """Share of right answers at which the baseline's lower bound reaches `enough`; above 1 when none does."""
    low, high = 0.0, trials
    if binomial_lower(trials, trials, SENSITIVITY_ALPHA) < enough:  # type: ignore[arg-type]  # fractions are fine
        return 2.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if binomial_lower(middle, trials, SENSITIVITY_ALPHA) >= enough else (middle, high)  # type: ignore[arg-type]
    return high / trials - 1e-9


def _too_few(part: Slice, chosen: Sequence[PlannedSet]) -> str:
    """Why a slice could say nothing at all, in words; empty when it could."""
    units = sum(len(one.clusters) or one.cases for one in chosen)
    kind, rule = METRICS[part.rule.metric].kind, part.rule
    least = MIN_CLUSTERS if kind != "quality" or any(one.clusters for one in chosen) else 1
    if rule.metric == "drift.kl_mean":
        least = clusters_needed(100 - 100 / UNSEEN_KL["of_limit"], 0.05)
    elif kind == "latency":
        least = max(MIN_CLUSTERS, clusters_needed(rule.percentile, 0.05))
    return f"{units} independent cases are too few ({least} needed)" if units < least else ""


# --------------------------------------------------------------------------------------------------------- changes


def _changes(model: _Model, rules: Sequence[PlannedRule]) -> Iterator[Change]:
    """What would make the policy decidable: first what costs no case, then more cases. Each was simulated."""
    for search in (_pooled, _wider, _more_cases):
        found = search(model, rules)
        if found is not None:
            yield found


def _targets(model: _Model) -> Iterator[float]:
    """Chances that each critical rule should have, so that all of them together have `ENOUGH`."""
    critical = max(1, model.family("critical"))
    yield from (ENOUGH ** (1 / critical), 1 - (1 - ENOUGH) / critical, 1 - (1 - ENOUGH) / critical / 3, 0.999)


def _pooled(model: _Model, rules: Sequence[PlannedRule]) -> Change | None:
    """One critical rule over all sets keeps the margin; sets too small to prove it alone guard against a collapse."""
    failing = _failing(model, rules)
    added: list[Rule] = []
    for metric in sorted({part.rule.metric for part in failing if part.name != "pooled"}):
        margin = min(p.rule.max_drop or 1.0 for p in failing if p.rule.metric == metric and p.name != "pooled")
        there = [p for p in model.quality if p.name == "pooled" and p.rule.metric == metric]
        if sum(metric in one.metrics for one in model.sets) > 1 and not any(p.rule.tier == "critical" for p in there):
            added.append(Rule(metric=metric, max_drop=margin))
    if len(model.sets) < 2 or not any(part.name != "pooled" for part in failing):
        return None
    return _rewritten(model, failing, added, "pooled endpoint")


def _wider(model: _Model, rules: Sequence[PlannedRule]) -> Change | None:
    failing = _failing(model, rules)
    if not failing or (len(model.sets) > 1 and any(part.name != "pooled" for part in failing)):
        return None  # nothing to widen, or the pooled endpoint's task
    return _rewritten(model, failing, [], "wider margins")


def _failing(model: _Model, rules: Sequence[PlannedRule]) -> list[Slice]:
    target = next(iter(_targets(model)))
    return [
        part
        for part, rule in zip(model.slices, rules, strict=True)
        if part.rule.tier == "critical" and rule.approve is not None and rule.approve < target
    ]


def _rewritten(model: _Model, failing: Sequence[Slice], added: Sequence[Rule], kind: str) -> Change | None:
    names = {(id(part.rule), part.name) for part in failing}
    for target in _targets(model):
        kept: list[Rule] = []
        lines: list[str] = []
        for rule in model.policy.rules:
            mine = [part for part in model.slices if part.rule is rule]
            if not any((id(rule), part.name) in names for part in mine):
                kept.append(rule)
                continue
            lines.append(f"instead of {_written(rule)}:")
            for part in mine:
                edited = rule if part.name == "pooled" else replace(rule, scope="pooled", evalset=part.name)
                if (id(rule), part.name) in names:
                    margin = _least_margin(model, part, target)
                    edited = replace(edited, tier="advisory") if margin is None else replace(edited, max_drop=margin)
                kept.append(edited)
                lines.append(f"  {_written(edited)}")
        changed = replace(model.policy, rules=(*kept, *added))
        lines += [f"add {_written(rule)}" for rule in added]
        if not any(r.tier == "critical" and METRICS[r.metric].kind == "quality" for r in changed.rules):
            continue
        tried = _tried(model, changed, model.sets, kind, lines)
        if tried is not None:
            return tried
    return None


def _least_margin(model: _Model, part: Slice, target: float) -> float | None:
    """The smallest margin, in half points, at which the slice approves an identical variant often enough."""
    cases, flips = sum(one.cases for one in model.among(part)), model.mean(part, model.disagreement)
    if model.clustered(part):
        sizes = np.concatenate([np.array(one.clusters or (1,) * one.cases) for one in model.among(part)])
        if len(sizes) < MIN_CLUSTERS:
            return None
        cases = int(independent_trials(sizes, np.arange(len(sizes))))
    right = model.mean(part, model.baseline)
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    surely = right - reach * sqrt(right * (1 - right) / cases)
    margin = (part.rule.max_drop or 0.0) + 0.005
    while margin < DROP_BELOW:
        margin = ceil(round(margin * 200, 6)) / 200
        if surely < max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin):
            return None
        if chance_to_approve(cases, margin, flips, 0.0, model.policy.alpha) >= target:
            return margin
        margin += 0.005
    return None


def _more_cases(model: _Model, rules: Sequence[PlannedRule]) -> Change | None:
    by_head = dict(zip([part.head for part in model.slices], rules, strict=True))
    factor = 1.0
    for target in _targets(model):
        needed = {one.name: one.cases for one in model.sets}
        for part in model.quality:
            if part.rule.tier != "critical":
                continue
            total = _cases_needed(model, part, target)
            if total is None:
                return None
            chosen = model.among(part)
            grown = total * factor / sum(needed[one.name] for one in chosen)
            if grown > 1:
                needed |= {one.name: ceil(needed[one.name] * grown) for one in chosen}
        for part in model.slices:  # what cannot be said for want of cases alone
            if part.rule.tier == "critical" and by_head[part.head].note.endswith("needed)"):
                least = int(by_head[part.head].note.rpartition("(")[2].split()[0])
                chosen = model.among(part)
                grown = least / sum(len(one.clusters) or one.cases for one in chosen)
                needed |= {one.name: max(needed[one.name], ceil(one.cases * grown)) for one in chosen}
        sets = [_grown(one, needed[one.name]) for one in model.sets]
        lines = [
            f"evalset {one.name}: {needed[one.name]:,} cases instead of {one.cases:,}"
            for one in model.sets
            if needed[one.name] > one.cases
        ]
        if max(needed.values()) > MOST_PAIRS or not lines:
            return None
        tried = _tried(model, model.policy, sets, "more cases", lines)
        if tried is not None:
            return tried
        factor *= 1.0 if not any(one.clusters for one in model.sets) else 1.3
    return None


def _cases_needed(model: _Model, part: Slice, target: float) -> int | None:
    margin, alpha = part.rule.max_drop or 0.0, model.policy.alpha
    right = model.mean(part, model.baseline)
    spare = right - max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin)
    found = pairs_to_approve(margin, model.mean(part, model.disagreement), target, alpha)
    if spare <= 0 or found is None:
        return None
    reach = normal_quantile(1 - SENSITIVITY_ALPHA) + normal_quantile(target)
    found = max(found, ceil(reach**2 * right * (1 - right) / spare**2) + ceil(1 / spare))
    if model.clustered(part):
        sizes = np.concatenate([np.array(one.clusters or (1,) * one.cases) for one in model.among(part)])
        typical = float(sizes @ sizes) / float(sizes.sum())
        found = max(ceil(found * (1 + ASSUMED_CORRELATION * (typical - 1)) * 1.1), ceil(MIN_CLUSTERS * typical))
    return found


def _grown(one: PlannedSet, cases: int) -> PlannedSet:
    """The set with more cases of the same kind: clusters are repeated, not enlarged."""
    if not one.clusters or cases == one.cases:
        return replace(one, cases=cases)
    times = ceil(cases / one.cases * len(one.clusters))
    sizes = (one.clusters * ceil(times / len(one.clusters)))[:times]
    return replace(one, cases=sum(sizes), clusters=sizes)


def _tried(model: _Model, policy: Policy, sets: Sequence[PlannedSet], kind: str, lines: Sequence[str]) -> Change | None:
    changed = _Model(sets=tuple(sets), policy=policy, assumed=model.assumed, draws=model.draws, seed=model.seed + 1)
    approve, block, _ = changed.rates()
    if approve < ENOUGH + 3 * sqrt(ENOUGH * (1 - ENOUGH) / changed.used):  # not by the luck of these draws
        return None
    cases = {one.name: one.cases for one in sets}
    return Change(kind=kind, lines=tuple(lines), cases=cases, policy=policy, approve=approve, block=block)


def _written(rule: Rule) -> str:
    """The rule as a line of a gate file."""
    parts = [f"metric: {rule.metric}"]
    if rule.evalset is not None:
        parts.append(f"evalset: {rule.evalset}")
    elif rule.scope == "evalset":
        parts.append("per: evalset")
    parts += [
        f"{name}: {value:g}"
        for name in ("max_drop", "max", "min", "max_ratio", "percentile")
        if (value := getattr(rule, name)) is not None
    ]
    return f"{{{', '.join(parts)}{f', tier: {rule.tier}' if rule.tier != 'critical' else ''}}}"
