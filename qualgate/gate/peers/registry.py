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
    inferencex,
    kimi_vendor,
    llm_compressor_recovery,
    lm_eval_z,
    mlperf,
    modelopt_day0,
    nel_v1,
    no_difference,
    sglang_minus5,
    statgate,
    trt_hypothesis,
    vllm_rtol,
    vllm_wilson,
)
from qualgate.gate.peers.rule import PeerRule

GROUP = "qualgate.peer_rules"
SHIPPED: dict[str, PeerRule] = {
    rule.name: rule
    for rule in (
        vllm_rtol.RULE,
        vllm_wilson.RULE,
        llm_compressor_recovery.RULE,
        trt_hypothesis.RULE,
        sglang_minus5.RULE,
        inferencex.RULE,
        *mlperf.RULES,
        lm_eval_z.RULE,
        no_difference.RULE,
        nel_v1.RULE,
        statgate.RULE,
        modelopt_day0.RULE,
        kimi_vendor.RULE,
    )
}


def rules() -> tuple[PeerRule, ...]:
    """The shipped rules, then those of other distributions by name. UsageError names a distribution that is broken."""
    others = plugins.offered(GROUP, SHIPPED)
    return (*SHIPPED.values(), *(plugins.load(others[name], PeerRule) for name in sorted(others)))
