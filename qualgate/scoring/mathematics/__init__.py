"""Mathematical answers: find the final one, parse it, and compare it with the reference.

`found` locates it in a text; `tokens`, `formula` and `reader` parse it to a `tree`; `same` compares two trees by rules
and `exact` numbers; what these cannot decide, `proof` compares at `points`, in a child process with limits.
"""

from qualgate.scoring.mathematics.scorer import SCORERS, score_math

__all__ = ["SCORERS", "score_math"]
