"""Measure one slice of a rule for one variant, with the module for the metric's kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qualgate.gate.comparisons.acceptance import Terms
from qualgate.gate.comparisons.agreement import measure_parity, measure_stability
from qualgate.gate.comparisons.arm_facts import measure_arm
from qualgate.gate.comparisons.cost import measure_cost
from qualgate.gate.comparisons.drift import measure_drift
from qualgate.gate.comparisons.goodput import measure_goodput
from qualgate.gate.comparisons.judged import measure_judged
from qualgate.gate.comparisons.latency import measure_latency
from qualgate.gate.comparisons.lengths import LENGTHS, measure_lengths
from qualgate.gate.comparisons.likelihood import measure_likelihood
from qualgate.gate.comparisons.pairs import pairs_of
from qualgate.gate.comparisons.quality import measure_quality
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.comparisons.skipped import skip_below_floor
from qualgate.gate.evidence.checks import About, Pair
from qualgate.gate.evidence.unfinished_sets import Unfinished
from qualgate.gate.rules import Slice
from qualgate.records import Slo
from qualgate.records.metrics import METRICS, PEOPLE

NOTHING_KNOWN = About()


def measure(
    slice_: Slice,
    pairs: dict[str, tuple[Pair, ...]],
    unfinished: Unfinished,
    alpha: float,
    terms: Terms | None = None,
    about: About = NOTHING_KNOWN,
) -> Measured:
    """The numbers of one slice, both tests, and what forbids a proof.

    unfinished: a set listed for the baseline gives no number, one listed for the variant no proof of quality. terms:
    prices, and what counts as accepted or late. about: facts on both arms.
    """
    slice_pairs, metric = pairs_of(slice_, pairs), METRICS[slice_.rule.metric]
    if slice_.obstacle:
        return unmeasured(slice_, len(slice_pairs), slice_.obstacle)
    empty = [name for name in slice_.evalsets if not pairs.get(name)]
    if empty:
        return unmeasured(slice_, len(slice_pairs), f"no pair of {empty[0]} was compared")
    if metric.kind == "arm":
        return measure_arm(slice_, slice_pairs, about)
    if not slice_pairs:  # of a label whose few cases are all in quarantine
        return unmeasured(slice_, 0, "none of its cases counts")
    if barred := next((unfinished.baseline[name] for name in slice_.evalsets if name in unfinished.baseline), ""):
        return unmeasured(slice_, len(slice_pairs), barred)
    measured = _measure_by_kind(slice_, slice_pairs, alpha, terms, about)
    barred = next((unfinished.variant[name] for name in slice_.evalsets if name in unfinished.variant), "")
    of_answers = metric.kind in ("quality", "judged")
    return replace(measured, obstacle=f"{slice_.head}: {barred}") if barred and of_answers else measured


def measure_all(
    slices: Sequence[Slice],
    pairs: Mapping[str, dict[str, tuple[Pair, ...]]],
    unfinished: Mapping[str, Unfinished],
    alpha: float,
    terms: Terms,
    about: Mapping[str, About],
) -> list[Measured]:
    """Measure each slice beside the arm that its rule is against. pairs, unfinished, about: by that arm."""
    places = [(slice_, slice_.rule.against) for slice_ in slices]
    return skip_below_floor(
        [measure(slice_, pairs[arm], unfinished[arm], alpha, terms, about[arm]) for slice_, arm in places]
    )


def _measure_by_kind(slice_: Slice, pairs: Sequence[Pair], alpha: float, terms: Terms | None, about: About) -> Measured:
    """Measure the slice by the function for its metric's kind. terms: prices and limits, for cost and goodput."""
    match METRICS[slice_.rule.metric].kind:
        case "quality":
            return measure_quality(slice_, pairs, alpha)
        case "likelihood":
            return measure_likelihood(slice_, pairs, alpha)
        case "judged":
            people = slice_.rule.metric == PEOPLE
            return measure_judged(slice_, pairs, about.preferred if people else about.judged, alpha)
        case "latency":
            return measure_latency(slice_, pairs, alpha)
        case "cost":
            return measure_cost(slice_, pairs, alpha, terms)
        case "service":
            return measure_goodput(slice_, pairs, alpha, terms.slo if terms else Slo())
        case "stability":
            return measure_stability(slice_, pairs, about.rerun, alpha)
        case "drift" | "length":
            return _to_baseline(slice_, pairs, alpha)
    raise AssertionError(f"no way to measure {slice_.rule.metric}")


def _to_baseline(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """Measure a property of the variant relative to the baseline's own answers."""
    if slice_.rule.metric.startswith("parity."):
        return measure_parity(slice_, pairs, alpha)
    return (measure_lengths if slice_.rule.metric in LENGTHS else measure_drift)(slice_, pairs, alpha)
