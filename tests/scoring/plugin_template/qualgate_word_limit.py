"""A scorer of one's own: is the answer within the case's `max_words`? `pip install .`, then
`qualgate score --scorer word_limit CASES.jsonl OUTPUTS.jsonl --json SCORES.jsonl`.
"""

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import right, wrong
from qualgate.scoring.registry import Scorer

VERSION = "word_limit/1"  # raise it whenever an answer may score otherwise than before


def word_limit(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    words, limit = len(text.split()), case.body["max_words"]
    if words <= limit:
        return {"word_limit": right("word_limit", VERSION, str(words))}
    return {"word_limit": wrong("word_limit", VERSION, "too_long", f"{words} words, {limit} allowed", str(words))}


SCORER = Scorer(
    name="word_limit", version=VERSION, metrics=("word_limit",), needs=("max_words",), function=word_limit
)  # fmt: skip
