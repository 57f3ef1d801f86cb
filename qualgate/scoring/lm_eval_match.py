r"""exact_match as lm-evaluation-harness 0.4.13 computes it, for `--mode compat`: gsm8k's rules with gsm8k's filters,
else the metric's own defaults, under which nothing is ignored.

Under gsm8k's both sides lose commas, dollar signs, all up to `#### ` and a final point, in this order, and are
lower-cased; the rest is compared as text. Surprising behaviour is kept:

- no number is read: against 18, the answers `18.0`, `18.00`, `018` and `18...` are wrong; one final point is dropped
- commas and dollar signs fall anywhere: `1,8` is 18
- everything up to the last `#### ` falls, on the answer's side too; `#### 18/1` is right under `strict-match`, since
  the filter has taken its 18 before
- NUL characters at the end are dropped after every step, because lm-eval keeps the texts in numpy arrays
- lower-casing is Python's, so `İ` becomes two characters; for the same reason what then is longer than the text was
  before is cut: `xİ` is `xi`, and is not equal to its own lower case
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring import filters
from qualgate.scoring.outcome import actual, quote, right, too_long, wrong
from qualgate.scoring.scorer import Scorer

SCORER = "exact_match.lm_eval/3"
METRIC = "exact_match"
OF_GSM8K = ("strict-match", "flexible-extract")  # the filters of that task
_FINAL_POINT = re.compile(r"\.$")


def compared(text: str, *, gsm8k: bool) -> str:
    """Return one side as it is compared, under the options of gsm8k's task or the metric's defaults."""
    if not gsm8k:
        return text.rstrip("\0")
    text = text.replace(",", "").rstrip("\0").replace("$", "").rstrip("\0").rpartition("#### ")[2].rstrip("\0")
    text = _FINAL_POINT.sub("", text)
    return text.rstrip("\0").lower()[: len(text)].rstrip("\0")


def score_exact_match(body: Mapping[str, Any], text: str, *, gsm8k: bool = False) -> dict[str, Score]:
    """Compare what a filter has taken from an answer with the case's `answer`."""
    if refusal := too_long(METRIC, SCORER, text):
        return {METRIC: refusal}
    if compared(text, gsm8k=gsm8k) == compared(str(body["answer"]), gsm8k=gsm8k):
        return {METRIC: right(METRIC, SCORER, text)}
    if text == filters.INVALID:
        return {METRIC: wrong(METRIC, SCORER, "invalid", "the filter found no answer", text)}
    return {METRIC: wrong(METRIC, SCORER, "different", f"{quote(text)} is not the reference", text)}


def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check that `answer` is a text, or a number, which is compared as text."""
    if type(body.get("answer")) not in (str, int, float):
        yield f"exact_match needs `answer`, a text or a number; {actual(body, 'answer')}"


def _behind(name: str) -> Callable[[Case, Evalset, str], dict[str, Score]]:
    """Return the scorer of what the filter `name` has taken from an answer."""
    return lambda case, evalset, text: score_exact_match(case.body, text, gsm8k=name in OF_GSM8K)


SCORERS = (
    Scorer(
        name="exact_match",
        mode="compat",
        version=SCORER,
        metrics=("exact_match",),
        function=_behind("none"),
        after=_behind,
        faults=faults,
    ),
)
