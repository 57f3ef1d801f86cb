"""Peer rules by name: those that ship, and those of other distributions.

A distribution adds one with an entry point in the group `qualgate.peer_rules`, whose name is the rule's and whose
object is a `PeerRule`:

    [project.entry-points."qualgate.peer_rules"]
    acme = "acme_rule:RULE"

A peer's rule decides nothing, so a broken plug-in is an error for the one who asked to see it and for nobody else.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from qualgate.errors import UsageError
from qualgate.gate.peers import (
    llm_compressor_recovery,
    lm_eval_z,
    nel_v1,
    sglang_minus5,
    trt_hypothesis,
    vllm_rtol,
)
from qualgate.gate.peers.rule import PeerRule

GROUP = "qualgate.peer_rules"
SHIPPED: dict[str, PeerRule] = {
    module.RULE.name: module.RULE
    for module in (vllm_rtol, llm_compressor_recovery, trt_hypothesis, sglang_minus5, lm_eval_z, nel_v1)
}


def rules() -> tuple[PeerRule, ...]:
    """The shipped rules, then those of other distributions by name. UsageError names a distribution that is broken."""
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    for point, name in zip(points, [None, *(point.name for point in points)], strict=False):
        if point.name in SHIPPED or point.name == name:
            raise UsageError(f"{_distribution(point)} declares the peer rule {point.name!r}, which is there already")
    return (*SHIPPED.values(), *map(_loaded, points))


def _loaded(point: EntryPoint) -> PeerRule:
    try:
        value = point.load()
    except Exception as error:
        raise UsageError(
            f"{_distribution(point)} declares the peer rule {point.name!r}, but {point.value} cannot be loaded "
            f"({type(error).__name__}: {error}); update or uninstall that distribution"
        ) from error
    if not isinstance(value, PeerRule) or value.name != point.name:
        what = f"a rule called {value.name!r}" if isinstance(value, PeerRule) else f"a {type(value).__name__}"
        raise UsageError(
            f"{_distribution(point)} declares the peer rule {point.name!r}, but {point.value} is {what}; "
            "it must be a qualgate.gate.peers.rule.PeerRule of that name"
        )
    return value


def _distribution(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
