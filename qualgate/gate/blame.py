"""What causes a block: the recipe that made the weights, or the kernel that multiplies them.

The witness is a twin arm: the same packed weights through the torch twin, judged by the same rules on the same cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from qualgate.records import TWIN, Verdict

NOT_SEEN = "KV cache and speculation: not available"


def with_causes(judged: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """The verdicts on variants; a blocked one whose twin was judged too names its cause. Twins get no verdict."""
    twins = {verdict.variant: verdict for verdict in judged if verdict.variant.endswith(TWIN)}
    return tuple(
        _with_cause(verdict, twins.get(verdict.variant + TWIN)) for verdict in judged if verdict.variant not in twins
    )


def _with_cause(verdict: Verdict, twin: Verdict | None) -> Verdict:
    if verdict.word != "block" or twin is None:
        return verdict
    cause, why = _cause(verdict, twin)
    return replace(
        verdict, cause=cause, reasons=(*verdict.reasons, f"cause: {cause or 'not known'}; {why}; {NOT_SEEN}")
    )


def _cause(verdict: Verdict, twin: Verdict) -> tuple[str, str]:
    """(cause, why). A rule the fused kernel breaks and the twin keeps is the kernel's; one both break, the recipe's."""
    if not twin.comparisons:
        return "", f"the torch twin's answers cannot be used ({twin.reasons[0]})"
    found = {(one.rule, one.slice): one for one in twin.comparisons}
    broken = [one for one in verdict.comparisons if one.tier == "critical" and one.status == "broken"]
    through_twin = Counter(found[one.rule, one.slice].status for one in broken)
    kernel, recipe, open_ = (through_twin[status] for status in ("proven", "broken", "undecided"))
    if open_ and not (kernel or recipe):
        return "", f"the torch twin leaves {_rules(open_)} undecided"
    causes = (["kernel"] if kernel else []) + (["recipe"] if recipe else [])
    says = [f"keeps {_rules(kernel)}"] if kernel else []
    says += [f"breaks {_rules(recipe)} as well"] if recipe else []
    says += [f"leaves {_rules(open_)} undecided"] if open_ else []
    return " and ".join(causes), f"through the torch twin the same weights {', '.join(says)}"


def _rules(count: int) -> str:
    return "the broken rule" if count == 1 else f"{count} of the broken rules"
