"""vLLM's CI: the score must reach (1 − rtol) times the registered one, at rtol 0.08. No standard error, no pairing."""

from __future__ import annotations

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "vllm_rtol"
SOURCE = "vllm-project/vllm: .buildkite/lm-eval-harness/test_lm_eval_correctness.py"


def judge(outcomes: Outcomes, *, rtol: float = 0.08) -> PeerVerdict:
    """Apply the rule. The run's baseline stands for the registered score."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    least, measured = outcomes.baseline.mean * (1 - rtol), outcomes.variant.mean
    return PeerVerdict(
        name=NAME,
        says="pass" if measured >= least else "fail",
        statistic=measured,
        threshold=least,
        why=f"{measured:.4f} against at least {least:.4f}, {rtol:.0%} below the baseline",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
