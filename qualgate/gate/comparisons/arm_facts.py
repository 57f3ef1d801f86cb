"""Rules on a variant as a whole: memory, coverage of its calibration, stability of its weights.

Each is one number measured while the variant was made or loaded, so no chance enters: the rule is kept, broken, or
undecided if the number was not measured. A model folder's own claims are no measurement.

Memory takes a variant that was loaded here, whoever made it. Coverage takes the baseline and the calibration set: of a
recipe its own, of a folder the one that the gate file names beside it. Stability takes the weights before and after
packing, so only what is packed here has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualgate.gate.comparisons.result import Measured, observed, unmeasured
from qualgate.gate.evidence.checks import About, Pair
from qualgate.gate.rules import Slice
from qualgate.records import CACHE_TOKEN, UnitEvidence

METHOD_COUNTED = "bytes_counted/1"
METHOD_MEASURED = "arm_measured/1"
WHY = {
    "memory": "sizes were not measured: they come from a run of this version, not from files of scores",
    "coverage": "no calibration of the variant was measured. Name the set that it was made with, in its recipe or, for "
    "a folder, beside it (`{model: FOLDER, calibration: SET}`), and run again; a direct cast reads no data: `tier: "
    "supporting` lets it pass by this rule",
    "stability": "the weights were not packed by this run, so what packing did to them was not measured. Make them "
    "here (`quantize:`), or let the rule be `tier: supporting` for a variant that comes as a folder: `qualgate inspect "
    "FOLDER --compare BASELINE` shows how far its weights are from the baseline's",
}


def measure_arm(slice_: Slice, pairs: Sequence[Pair], about: About) -> Measured:
    """Measure a rule on the arm. `variant` is the number; by ratio, `baseline` and the ratio's bounds come with it."""
    rule, n = slice_.rule, len(pairs)
    value = _value(rule.metric, about.variant, [pair.variant for pair in pairs])
    if value is None:
        return unmeasured(slice_, n, about.unmeasured.get(rule.metric) or WHY[rule.metric.partition(".")[0]])
    if rule.max_ratio is not None:
        base = _value(rule.metric, about.baseline, [pair.baseline for pair in pairs])
        if not base:
            return unmeasured(slice_, n, "the baseline's was not measured, so there is no ratio to it")
        ratio = value / base
        return observed(
            slice_, n, ratio, within_limit=ratio <= rule.max_ratio, method=METHOD_COUNTED, variant=value, baseline=base
        )
    within_limit = value >= rule.min if rule.min is not None else value <= (rule.max or 0.0)
    return observed(slice_, n, value, within_limit=within_limit, method=METHOD_MEASURED)


def _value(metric: str, facts: Mapping[str, float], units: Sequence[UnitEvidence]) -> float | None:
    if metric != "memory.peak":
        return facts.get(metric)
    weights, token = facts.get("memory.weights"), facts.get(CACHE_TOKEN)
    if weights is None or token is None or not units or any(None in (u.prompt_tokens, u.tokens) for u in units):
        return None
    return weights + token * max((unit.prompt_tokens or 0) + (unit.tokens or 0) for unit in units)
