"""Answers that are mathematics: where the final one stands, what it says, whether it says what the reference says.

`found` finds it in a text; `tokens`, `formula` and `reader` make a `tree` of it; `same` holds two trees against each
other, by rules and by `exact` numbers; what these cannot say, `proof` has compared at `points`, in a child that can be
ended.
"""

from qualgate.scoring.mathematics.scorer import METRIC, SCORER, faults, score_math

__all__ = ["METRIC", "SCORER", "faults", "score_math"]
