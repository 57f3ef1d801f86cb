"""Find the part of a variant that causes a block: its kernel, KV cache or speculation, or the recipe of the weights.

A witness is an arm that lacks one part (no draft, packed weights through the torch twin, the baseline's KV cache),
judged by the same rules on the same cases. The torch twin also drafts nothing and has a float32 cache, so it only
counts for rules that are broken without those parts too. What every witness breaks is the recipe's fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from qualgate.records import PLAIN, TWIN, WIDE, Verdict

# Suffix of a witness's name (no variant's can end so) → the part it lacks. `run --blame` makes these arms.
WITNESSES = {PLAIN: "speculation", TWIN: "kernel", WIDE: "KV"}
WITNESS_NAMES = {TWIN: "the torch twin", WIDE: "the baseline's KV cache", PLAIN: "decoding without a draft"}


def with_causes(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Name the causes of blocked variants that have witnesses, and drop the witnesses' own verdicts."""
    witnesses = {verdict.variant: verdict for verdict in verdicts if verdict.variant.endswith(tuple(WITNESSES))}
    return tuple(
        _with_cause(verdict, {end: witness for end in WITNESSES if (witness := witnesses.get(verdict.variant + end))})
        for verdict in verdicts
        if verdict.variant not in witnesses
    )


def _with_cause(verdict: Verdict, witnesses: Mapping[str, Verdict]) -> Verdict:
    """Add to a blocked verdict what its witnesses show: the components to blame, and why.

    witnesses: ending of a witness's name → its verdict. Other verdicts are returned unchanged.
    """
    if verdict.word != "block" or not witnesses:
        return verdict
    causes, whys, all_broken = [], [], _broken(verdict)
    without = [_broken(witness) for end, witness in witnesses.items() if end != TWIN]
    for end, witness in witnesses.items():
        broken = all_broken.intersection(*without) if end == TWIN else all_broken
        if not broken:
            continue
        culprits, why = _component_or_recipe(broken, witness, WITNESSES[end], WITNESS_NAMES[end])
        causes += [culprits]
        whys += [why]
    components = list(
        dict.fromkeys(component for culprits in causes for component in culprits if component != "recipe")
    )
    recipe = bool(causes) and all("recipe" in culprits for culprits in causes)
    cause = " and ".join(components + (["recipe"] if recipe else []))
    missing = [component.replace("KV", "KV cache") for end, component in WITNESSES.items() if end not in witnesses]
    whys += [f"{' and '.join(missing)}: not available"] if missing else []
    return replace(
        verdict, cause=cause, reasons=(*verdict.reasons, f"cause: {cause or 'not known'}; {'; '.join(whys)}")
    )


def _broken(verdict: Verdict) -> set[tuple[str, str]]:
    """(rule, slice) of the broken critical rules."""
    return {
        (comparison.rule, comparison.slice)
        for comparison in verdict.comparisons
        if comparison.tier == "critical" and comparison.status == "broken"
    }


def _component_or_recipe(
    broken: Set[tuple[str, str]], witness: Verdict, component: str, witness_name: str
) -> tuple[tuple[str, ...], str]:
    """Decide whether one component or the recipe breaks the rules. Returns: (causes, why).

    A rule that the variant breaks and the witness keeps is broken by the component that the witness lacks; one that
    both break, by the recipe. No cause if the witness's answers cannot be used, or leave every rule undecided.
    """
    if not witness.comparisons:
        return (), f"{witness_name}'s answers cannot be used ({witness.reasons[0]})"
    by_rule = {(comparison.rule, comparison.slice): comparison for comparison in witness.comparisons}
    without = Counter(by_rule[rule_slice].status for rule_slice in broken)
    proven, still_broken, undecided = (without[status] for status in ("proven", "broken", "undecided"))
    if undecided and not (proven or still_broken):
        return (), f"{witness_name} leaves {_rules(undecided)} undecided"
    outcomes = [f"keeps {_rules(proven)}"] if proven else []
    outcomes += [f"breaks {_rules(still_broken)} as well"] if still_broken else []
    outcomes += [f"leaves {_rules(undecided)} undecided"] if undecided else []
    causes = (*((component,) if proven else ()), *(("recipe",) if still_broken else ()))
    return causes, f"through {witness_name} the same weights {', '.join(outcomes)}"


def _rules(count: int) -> str:
    return "the broken rule" if count == 1 else f"{count} of the broken rules"
