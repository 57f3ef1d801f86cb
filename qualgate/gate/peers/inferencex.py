"""InferenceX's floors: a served model must reach a fixed score on each task, whatever its baseline reached."""

from __future__ import annotations

from qualgate.gate.peers.rule import Outcomes, PeerRule, PeerVerdict, cannot, unanswered

NAME = "inferencex_floor"
SOURCE = "SemiAnalysisAI/InferenceX: utils/evals/validate_scores.py, thresholds.json"
FLOORS = {"gsm8k": 0.90, "gpqa_diamond_cot_n_shot": 0.30, "swebench_lite": 0.10}  # without a model's own
OTHERWISE = 0.85


def judge(outcomes: Outcomes) -> PeerVerdict:
    """Apply the rule. The evalset's name is the task's."""
    if why := unanswered(outcomes):
        return cannot(NAME, SOURCE, why)
    least, measured = FLOORS.get(outcomes.evalset, OTHERWISE), outcomes.variant.mean
    return PeerVerdict(
        name=NAME,
        says="pass" if measured >= least else "fail",
        statistic=measured,
        threshold=least,
        why=f"{measured:.4f} against a floor of {least:g} for {outcomes.evalset:.40}, whatever the baseline",
        source=SOURCE,
    )


RULE = PeerRule(name=NAME, source=SOURCE, judge=judge)
