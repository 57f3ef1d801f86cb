"""Kimi's vendor check: an endpoint must call tools where the official one does, with an F1 of at least 0.73.

0.73 is the bar for K2 Thinking, 0.80 the one for K2 0905; the official endpoint against itself comes to 0.76 and 0.84.
The check also reports a schema accuracy, without a bar. It counts answers that end in a tool call; here a right call of
`tool_call.*` stands for one. It cannot judge other metrics.
"""

from __future__ import annotations

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "kimi_vendor"
SOURCE = "MoonshotAI/K2-Vendor-Verifier: README.md"


def judge(outcomes: Outcomes, *, least: float = 0.73) -> PeerVerdict:
    """Apply the rule. least: the smallest acceptable F1."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    if not outcomes.metric.startswith("tool_call."):
        return cannot(NAME, SOURCE, "it is about tool calls")
    both = round(outcomes.paired_level * outcomes.difference.n) - outcomes.lost
    if not 2 * both + outcomes.lost + outcomes.gained:
        return cannot(NAME, SOURCE, "neither arm makes a right call")
    f1 = 2 * both / (2 * both + outcomes.lost + outcomes.gained)
    return PeerVerdict(
        name=NAME,
        says="pass" if f1 >= least else "fail",
        statistic=f1,
        threshold=least,
        why=f"F1 {f1:.1%} of right calls, against at least {least:.0%}",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
