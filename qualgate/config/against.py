"""Rules of a gate file by their places: against the baseline, and against other arms (`gate: {against: …}`)."""

from __future__ import annotations

from collections.abc import Iterator

from qualgate.config.model import GateFileModel
from qualgate.config.rules import RuleEntry
from qualgate.documents import Document, Fault, nearest, quote
from qualgate.records.metrics import METRICS

Place = tuple[str | int, ...]


def placed_rules(model: GateFileModel) -> Iterator[tuple[Place, RuleEntry]]:
    """Yield each rule with its place in the file: those against the baseline, then those against each other arm."""
    for index, rule in enumerate(model.gate.rules or ()):
        yield ("gate", "rules", index), rule
    for name, entry in (model.gate.against or {}).items():
        for index, rule in enumerate(entry.rules):
            yield ("gate", "against", name, "rules", index), rule


def against_of(place: Place) -> str:
    """The arm that the rule at this place is against; "": the baseline."""
    return str(place[2]) if place[1] == "against" else ""


def check_against(document: Document, model: GateFileModel) -> Iterator[Fault]:
    """Check that rules against other arms name arms of the file, leave a variant to be judged, and can be measured."""
    names, place = dict(model.gate.against or {}), ("gate", "against")
    for name, entry in names.items():
        if name not in model.variants:
            yield document.fault((*place, name), f"no variant {quote(name)}{nearest(name, model.variants)}")
        if not any(rule.tier == "critical" and METRICS[rule.metric].approves for rule in entry.rules):
            yield document.fault(
                (*place, name), "no critical rule on a quality metric, so nothing would be proven against it"
            )
    if names and not model.variants.keys() - names:
        yield document.fault(place, "every variant stands under `against`, so none is left to be judged")
    roles = [variant.arm for variant in model.variants.values() if variant.arm is not None]
    ways = {
        "`four_arm` chooses among arms by the baseline alone": model.four_arm is not None or roles,
        "an nel policy knows one baseline": model.gate.nel_policy is not None,
        "`stop: early` settles a variant before all answers are there": model.gate.stop == "early",
    }
    for why in (why for why, applies in ways.items() if names and applies):
        yield document.fault(place, f"{why}; take one of the two out")
    for at, rule in placed_rules(model):
        if against_of(at) and not METRICS[rule.metric].of_any_two:
            yield document.fault(
                at, f"{rule.metric} is measured against the baseline alone, or of one arm; write it under `gate.rules`"
            )
