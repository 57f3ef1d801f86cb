"""The verdict: evidence is checked, rules become comparisons, comparisons become one word and an exit code."""

from qualgate.gate.rules import check_policy
from qualgate.gate.verdict import decide, overall_exit

__all__ = ["check_policy", "decide", "overall_exit"]
