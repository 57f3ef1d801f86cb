"""Peer rules by name: those that ship, and those of other distributions.

A distribution adds one with an entry point in the group `qualgate.peer_rules`, whose name is the rule's and whose
object is a `PeerRule`:

    [project.entry-points."qualgate.peer_rules"]
    acme = "acme_rule:RULE"

A peer's rule decides nothing, so a broken plug-in is an error only for a user who asks to see it.
"""

from __future__ import annotations

from qualgate import plugins
from qualgate.gate.peers import (
    kimi_vendor,
    llm_compressor_recovery,
    lm_eval_z,
    modelopt_day0,
    nel_v1,
    sglang_minus5,
    statgate,
    trt_hypothesis,
    vllm_rtol,
)
from qualgate.gate.peers.rule import PeerRule

GROUP = "qualgate.peer_rules"
SHIPPED: dict[str, PeerRule] = {
    module.RULE.name: module.RULE
    for module in (
        vllm_rtol,
        llm_compressor_recovery,
        trt_hypothesis,
        sglang_minus5,
        lm_eval_z,
        nel_v1,
        statgate,
        modelopt_day0,
        kimi_vendor,
    )
}


def rules() -> tuple[PeerRule, ...]:
    """The shipped rules, then those of other distributions by name. UsageError names a distribution that is broken."""
    others = plugins.offered(GROUP, SHIPPED)
    return (*SHIPPED.values(), *(plugins.load(others[name], PeerRule) for name in sorted(others)))
