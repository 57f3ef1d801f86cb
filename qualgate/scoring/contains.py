"""Answers in sentences: `contains`, a reference somewhere in the answer, and `pattern`, a regular expression.

`contains` compares words and numbers, not characters: both texts become a sequence of them, and the reference's must
stand in the answer's without a gap.

- Words are compared after NFKC and case folding, without a, an, the, without punctuation (`U.S.` is `us`, `twenty-one`
  is two words), but for `+`, `#` and `-` behind one letter or AB: `C++`, `C#`, `A-`; `-` only before punctuation or
  where a line ends. In scripts without spaces each character is a word.
- A number is one word by its value: `1,234.50` is `1234.5`, and `5` is in none of `15`, `5.2`, `-5`, `1.2.5`, `5:30`.
  Currency and percent signs are not read.
- A case may ask for several: `contains: {all: [...]}`, or for one of several: `contains: {any: [...]}` or `references`.
- An answer that was cut at its limit is never right, nor one that names another of the case's `choices` as well.

inspect's `includes` and the `contains` of lm-eval's tasks look for characters: there `cat` is in `concatenate` and `5`
in `15`, and here in neither; `It was Paris.` contains `paris` in all of them. TriviaQA and SQuAD ask that the whole
answer is the reference, by the same folding of case, articles and punctuation.

`pattern` searches the answer for the case's `pattern` (syntax of RE2; case is read). If it has a group, what the last
match holds there must equal a reference, case and outer space aside; if it has none, a match is enough. inspect's
`pattern` ignores case and takes the first match.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

import re2

from qualgate.records import Evalset, Score
from qualgate.scoring.outcome import actual, quote, right, too_long, wrong
from qualgate.scoring.references import references_of
from qualgate.scoring.regexes import MAX_PATTERN, compiled_by_re2
from qualgate.scoring.scorer import Scorer, by_body
from qualgate.scoring.text import stackable

CONTAINS = "contains/2"
PATTERN = "pattern/1"
MOST_DIGITS = 400

_NO_SPACES = (  # Thai, Lao, Burmese, Khmer, kana, Han, Hangul
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
)
# Marks on letters; of Indic scripts all that is written.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
_LETTER = rf"(?:(?![{_NO_SPACES}])(?:[^\W\d_]|[{_MARKS}]))"
# Possessive throughout: nothing is tried twice, whatever an answer repeats.
_WORD = re.compile(
    rf"""(?P<joined>(?:[0-9]++(?:[/:][0-9]++)++|[0-9]++(?:\.[0-9]++){{2,}}+))(?!{_LETTER})
       |(?P<number>(?:(?<![\w)\]])[-+−])?(?<![^\W_])
          (?>[0-9]{{1,3}}(?:,[0-9]{{3}})++(?![0-9])|[0-9]++)(?:\.[0-9]++)?+)(?!{_LETTER})
       |(?P<initials>(?<![^\W_])(?:{_LETTER}\.){{2,}}+)
       |(?P<signed>(?:ab|{_LETTER})(?:[+#]++(?!\w)|-(?=\s*+(?:\Z|[.,;:!?)\]}}'"’”*。、])|[^\S\n]*+\n)))
       |(?P<word>(?:{_LETTER}|[0-9])++(?:['’](?:{_LETTER}|[0-9])++)*+)
       |(?P<alone>[{_NO_SPACES}])""",
    re.VERBOSE,
)
_ARTICLES = frozenset(("a", "an", "the"))


def words(text: str) -> tuple[str, ...]:
    """The text's words and numbers as `contains` compares them."""
    plain = unicodedata.normalize("NFKC", text) if not text.isascii() and stackable(text) else text
    plain = plain.casefold()
    if not plain.isascii():
        plain = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    return tuple(word for match in _WORD.finditer(plain) if (word := _folded(match)) not in _ARTICLES)


def _folded(match: re.Match[str]) -> str:
    token = match[0]
    if match.lastgroup != "number" or len(token) > MOST_DIGITS:
        return token.translate(_INNER) if match.lastgroup in ("initials", "word") else token
    value = Decimal(token.replace(",", "").replace("−", "-"))
    return format(value.normalize() if value else Decimal(0), "f")


_INNER = str.maketrans("", "", ".'’")


def score_contains(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """The metric `contains` of an answer: see above. Wrong has the error types empty, absent and several_choices."""
    if refusal := too_long("contains", CONTAINS, text):
        return {"contains": refusal}
    answer_words = _sequence(text)
    references, every = wanted_of(body)
    present = [reference for reference in references if _sequence(str(reference)) in answer_words]
    if len(present) < len(references) if every else not present:
        word = "absent" if text.strip() else "empty"
        absent = next(reference for reference in references if reference not in present)
        missing = quote(absent) if every or len(references) == 1 else f"any of {len(references)} references"
        return {"contains": wrong("contains", CONTAINS, word, f"the answer does not contain {missing}")}
    if extra := _other_choices(body, answer_words, references):
        reason = f"the answer contains {quote(present[0])} and also names {quote(extra[0])}, another of the choices"
        return {"contains": wrong("contains", CONTAINS, "several_choices", reason, str(present[0]))}
    return {"contains": right("contains", CONTAINS, str(present[0]))}


def wanted_of(body: Mapping[str, Any]) -> tuple[tuple[Any, ...], bool]:
    """Return what the answer must contain, and whether it must contain all of it. ValueError for a bad `contains`."""
    if "contains" not in body:
        return references_of(body), False
    condition = body["contains"]
    if not isinstance(condition, dict) or len(condition) != 1 or (kind := next(iter(condition))) not in ("all", "any"):
        raise ValueError(f"`contains` is {{all: [...]}} or {{any: [...]}}; {actual(body, 'contains')}")
    if not isinstance(condition[kind], list) or not condition[kind]:
        raise ValueError(f"`contains.{kind}` is a list of one text or more; {actual(body, 'contains')}")
    return tuple(condition[kind]), kind == "all"


def contains_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check, for contains, that `contains`, `references` or `answer` are texts or numbers with a word in them."""
    try:
        references, _ = wanted_of(body)
    except ValueError as error:
        yield str(error)
        return
    key = next((name for name in ("contains", "references") if name in body), "answer")
    for reference in references or (None,):
        if type(reference) not in (str, int, float) or not words(str(reference)):
            yield f"contains needs texts with a word or a number in `{key}`; {actual(body, key)}"
            return


def _sequence(text: str) -> str:
    """Words between separators, so that one sequence is in another only where whole words are."""
    return "\x1f" + "\x1f".join(words(text)) + "\x1f"


def _other_choices(body: Mapping[str, Any], answer_words: str, references: tuple[Any, ...]) -> list[str]:
    """Return the choices of a closed list that the answer names besides the references.

    A choice within a reference is none.
    """
    choices = body.get("choices")
    expected = [_sequence(str(reference)) for reference in references]
    return [
        choice
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, str)
        and words(choice)
        and (choice_words := _sequence(choice)) in answer_words
        and not any(choice_words in reference_words for reference_words in expected)
    ]


_compiled = lru_cache(maxsize=1024)(compiled_by_re2)


def pattern_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check, for pattern, that RE2 reads `pattern`, that it has one group at most, and with one a reference."""
    pattern = body["pattern"]
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN:
        yield f"`pattern` is a regular expression of 1 to {MAX_PATTERN:,} characters; {actual(body, 'pattern')}"
        return
    try:
        compiled = _compiled(pattern)
    except re2.error as error:
        yield f"`pattern` is not read by RE2: {error}; {actual(body, 'pattern')}"
        return
    references = [value for value in references_of(body) if type(value) in (str, int, float) and str(value).strip()]
    if compiled.groups > 1:
        yield f"`pattern` has {compiled.groups} groups; write (?:…) for all but the one that holds the answer"
    elif compiled.groups and not references:
        yield f"`pattern` has a group, so it needs `answer`, which the group must equal; {actual(body, 'answer')}"
    elif compiled.search("") is not None:
        yield "`pattern` matches an empty answer, so an answer that says nothing would be right"


def score_pattern(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """The metric `pattern` of an answer: see above. Wrong has the error types empty, no_match and different."""
    if refusal := too_long("pattern", PATTERN, text):
        return {"pattern": refusal}
    compiled = _compiled(body["pattern"])
    last = deque(compiled.finditer(text.encode("utf-8", "replace")), maxlen=1)  # bytes: no offsets are turned back
    if not last:
        word = "no_match" if text.strip() else "empty"
        return {"pattern": wrong("pattern", PATTERN, word, f"nothing matches {quote(body['pattern'])}")}
    captured = (last[0][compiled.groups] or b"").decode("utf-8", "replace")
    if not compiled.groups or any(_same(captured, reference) for reference in references_of(body)):
        return {"pattern": right("pattern", PATTERN, captured)}
    reason = f"{quote(captured)} is not {quote(references_of(body)[0])}"
    return {"pattern": wrong("pattern", PATTERN, "different", reason, captured)}


def _same(captured: str, reference: Any) -> bool:
    return captured.strip().casefold() == str(reference).strip().casefold()


def cut(score: Score) -> Score:
    """Return the score of an answer that was cut at its limit: it may have gone on to contradict the reference."""
    if score.metric != "contains" or not score.verdict:
        return score
    reason = "the answer contains the reference and was cut at its limit"
    return wrong("contains", score.scorer, "cut", reason, score.extracted)


SCORERS = (
    Scorer(
        name="contains",
        version=CONTAINS,
        metrics=("contains",),
        function=by_body(score_contains),
        faults=contains_faults,
    ),
    Scorer(
        name="pattern",
        version=PATTERN,
        metrics=("pattern",),
        function=by_body(score_pattern),
        needs=("pattern",),
        faults=pattern_faults,
    ),
)
