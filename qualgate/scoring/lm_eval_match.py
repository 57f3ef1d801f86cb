r"""exact_match as lm-evaluation-harness 0.4.13 computes it, for `--mode compat`: gsm8k's rules with gsm8k's filters,
else the metric's own defaults, under which nothing is ignored.

Both sides lose what each of `regexes_to_ignore` matches, in order, then are lower-cased, then lose ASCII punctuation,
then ASCII digits, each only if requested; the rest is compared as text. Surprising behaviour is kept:

- no number is read: against 18, the answers `18.0`, `18.00`, `018` and `18...` are wrong; one final point is dropped
- commas and dollar signs fall anywhere: `1,8` is 18
- everything up to the last `#### ` falls, on the answer's side too; `#### 18/1` is right under `strict-match`, since
  the filter has taken its 18 before
- NUL characters at the end are dropped after every step, because lm-eval keeps the texts in numpy arrays
- lower-casing is Python's, so `İ` becomes two characters; for the same reason what then is longer than the text was
  before is cut: `xİ` is `xi`, and is not equal to its own lower case
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qualgate.records import Score
from qualgate.sandbox import killable
from qualgate.scoring import filters, regexes
from qualgate.scoring.outcome import cannot_say, quote, right, too_long, wrong

SCORER = "exact_match.lm_eval/3"
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_DIGITS = str.maketrans("", "", string.digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of lm-eval's metric, under its names."""

    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    regexes_to_ignore: tuple[str, ...] = ()


GSM8K = Options(ignore_case=True, regexes_to_ignore=(",", r"\$", "(?s).*#### ", r"\.$"))


def options_of(pipeline: str | filters.Pipeline) -> Options:
    """Return the options of lm-eval's task with that filter: gsm8k's, else the metric's defaults."""
    return GSM8K if pipeline in ("strict-match", "flexible-extract") else Options()


def compared(text: str, options: Options) -> str:
    """Return one side as it is compared, with everything removed that `options` ignore."""
    width = len(text)
    for pattern in options.regexes_to_ignore:
        text = regexes.remove(pattern, text)
        width, text = len(text), text.rstrip("\0")
    text = text.rstrip("\0")
    text = text.lower()[:width].rstrip("\0") if options.ignore_case else text
    text = text.translate(_PUNCTUATION).rstrip("\0") if options.ignore_punctuation else text
    return text.translate(_DIGITS).rstrip("\0") if options.ignore_numbers else text


def score_exact_match(
    body: Mapping[str, Any],
    text: str | Sequence[str],
    pipeline: str | filters.Pipeline = "strict-match",
    options: Options | None = None,
) -> dict[str, Score]:
    """The answer that `pipeline` finds in `text` (one response, or all of a case) against the case's `answer`.

    options: those of the task the pipeline is from by default, see `options_of`.
    A pattern that had to be stopped, or a pipeline that cannot be applied, gives no verdict.
    """
    options = options_of(pipeline) if options is None else options
    metric, responses = "exact_match", [text] if isinstance(text, str) else list(text)
    if refusal := next(filter(None, (too_long(metric, SCORER, response) for response in responses)), None):
        return {metric: refusal}
    try:
        filtered = filters.build(pipeline)(responses, body)
        if not isinstance(filtered, str):
            return {metric: cannot_say(metric, SCORER, "filter", f"the filter gave {quote(filtered)}, not one text")}
        same = compared(filtered, options) == compared(str(body["answer"]), options)
    except killable.Killed as failure:
        return {metric: cannot_say(metric, SCORER, "stopped", f"a pattern was stopped: {failure}")}
    except (filters.FilterFault, regexes.BadPattern) as failure:
        return {metric: cannot_say(metric, SCORER, "filter", str(failure))}
    if same:
        return {metric: right(metric, SCORER, filtered)}
    if filtered == filters.INVALID:
        return {metric: wrong(metric, SCORER, "invalid", "the filter found no answer", filtered)}
    return {metric: wrong(metric, SCORER, "different", f"{quote(filtered)} is not the reference", filtered)}
