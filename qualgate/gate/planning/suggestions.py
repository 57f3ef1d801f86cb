"""Suggest changes that make a policy decidable: first those that keep every margin and tier (more cases, more answers
to each), then those that cost no case (a pooled endpoint, wider margins). Draws confirm each change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from qualgate.gate.advice import AIM
from qualgate.gate.planning.cases_needed import cases_needed, with_cases
from qualgate.gate.planning.change import Change, targets, tried
from qualgate.gate.planning.power import PlannedRule, Prediction
from qualgate.gate.planning.rewritten_rules import pooled_endpoint, wider_margins


def changes(model: Prediction, rules: Sequence[PlannedRule]) -> Iterator[Change]:
    """Yield changes; none if a set has no case that counts: it cannot grow. rules: predictions for each slice."""
    if not all(planned_set.cases for planned_set in model.sets):
        return
    pooled = pooled_endpoint(model, rules)
    wider = None if pooled else wider_margins(model, rules)
    candidates = (_more_cases(model), _repeated(model), pooled, wider)
    yield from (change for change in candidates if change is not None)


def _more_cases(model: Prediction) -> Change | None:
    """Suggest more cases: of all kinds for a whole set, of one label for a slice by label.

    Returns the largest of the changes tried that makes the policy decidable; None if none does.
    """
    factor, change = 1.0, None
    for target in targets(model, AIM):
        larger = _enlarged_sets(model, target, factor)
        lines = _growth_lines(model, larger) if larger is not None else []
        if larger is None or not lines:
            break
        change = tried(larger, "more cases", lines) or change
        if change is not None and change.approve >= AIM:
            break
        factor *= (
            1.3 if any(model.clustered(slice_) or slice_.rule.max_drop is None for slice_ in model.quality) else 1.0
        )
    return change


def _enlarged_sets(model: Prediction, target: float, factor: float) -> Prediction | None:
    """Enlarge the sets to the cases that each critical slice needs, times `factor`; None if that is not possible.

    target: chance that each slice should have.
    """
    larger: Prediction | None = model
    labels_first = sorted(model.critical, key=lambda slice_: slice_.only is None)  # what they need counts for the set
    for slice_ in labels_first:
        total = cases_needed(model, slice_, target)
        # pyrefly: ignore[bad-argument-type]
        larger = with_cases(larger, slice_, total * factor) if total is not None else None
        if larger is None:
            return None
    for slice_ in model.slices:  # the least number of cases for each rule
        if slice_.rule.tier == "critical":
            least = model.units_needed(slice_) * model.cases(slice_) / max(1, model.sizes(slice_).total())
            larger = with_cases(larger, slice_, least)  # pyrefly: ignore[bad-argument-type]
            if larger is None:
                return None
    return larger


def _repeated(model: Prediction) -> Change | None:
    """Ask for more answers to each case, if their correlation is below 1 and all critical rules average them.

    However many there are, they are worth at most 1 / correlation answers.
    """
    planned = max(planned_set.repeats for planned_set in model.sets)
    failing = [slice_ for slice_ in model.critical if slice_.rule.repeats == "mean"]
    if len(failing) < len(model.critical):
        return None
    most_factor = 1 / max(model.assumed.repeat_correlation, 1e-3)
    wanted = [cases_needed(model, slice_, next(iter(targets(model)))) for slice_ in failing]
    if any(
        cases is None or cases > most_factor * model.cases(slice_)
        for cases, slice_ in zip(wanted, failing, strict=True)
    ):
        return None
    for repeats in (2, 4, 8):
        if repeats > planned:
            sets = tuple(replace(planned_set, repeats=repeats) for planned_set in model.sets)
            settings = f"repeats: {repeats}" if planned > 1 else f"temperature: 0.7, repeats: {repeats}"
            lines = [f"generation: {{{settings}}}  # answers to each case; they are sampled"]
            if (change := tried(replace(model, sets=sets), "repeats", lines)) is not None:
                return change
    return None


def _growth_lines(before: Prediction, after: Prediction) -> list[str]:
    """Describe each set that has grown, one line each, with the labels that grew by less than the whole set."""
    lines = []
    for small_set, grown_set in zip(before.sets, after.sets, strict=True):
        if grown_set.cases == small_set.cases:
            continue
        line = (
            f"evalset {grown_set.name}: {grown_set.cases + grown_set.quarantined:,} cases instead of "
            f"{small_set.cases + small_set.quarantined:,}"
        )
        labels = {
            slice_.rule.where or slice_.name: before.view(slice_, small_set)
            for slice_ in before.critical
            if slice_.only
        }
        for name, view in labels.items():
            were, are = (
                sum(
                    count * clusters
                    for kind, clusters in planned_set.kinds.items()
                    for marks, count in kind
                    if marks in (view or ())
                )
                for planned_set in (small_set, grown_set)
            )
            if were < are < grown_set.cases:
                line += f", of them {are:,} with {name} instead of {were:,}"
        lines.append(line)
    return lines
