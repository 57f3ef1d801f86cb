"""Format damage: did the answer end, say something, not repeat itself, not refuse, and stay in its language?

Higher is better for each, so that a rule on any of them is `max_drop`, like every rate. Each is a function of one
completion and its case, whatever else the evalset scores, so baseline and variant are paired case by case:

- `format.finished`: the answer ended by itself (`eos` or `stop`), not at max_new_tokens and not aborted.
- `format.nonempty`: a character that is neither blank nor invisible.
- `format.no_loop`: the answer does not end in a loop. A loop is a block of characters that fills the answer's end: at
  least 4 times over, the last time perhaps in part, and at least 32 characters in all (Z-function of the reversed
  text, linear time). Only the last 8,192 characters are looked at, so blocks of up to 2,048 are found.
- `format.no_refusal`: the answer does not begin with a declared phrase of refusal (after blanks, quotes, markdown). The
  phrases are few and say "I cannot" outright; where the case's own `answer` is a refusal, or its `refuse` is true, so
  may the answer be.
- `format.same_language`: the answer is in the language of its case (`scoring.language`).

A task that demands a loop or another script costs the baseline the same metric, so pairing cancels it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from qualgate.records import Case, Score
from qualgate.scoring.language import language_fault
from qualgate.scoring.outcome import cannot_say, quote, right, wrong
from qualgate.text.escaping import says_something

SCORER = "format/4"
SAME_LANGUAGE = "format.same_language"
METRICS = ("format.finished", "format.nonempty", "format.no_loop", "format.no_refusal", SAME_LANGUAGE)

LOOP_READ, LOOP_TIMES, LOOP_LENGTH = 8192, 4, 32
REFUSAL_READ = 400  # characters from the first letter on

# Patterns of how a refusal begins; folded for case, with straight apostrophes and single spaces.
_CANNOT = r"(i can't|i cannot|i can not|i'm unable to|i am unable to|i'm not able to|i am not able to|i won't)"
REFUSALS: dict[str, tuple[str, ...]] = {
    "en": (
        rf"((i'm|i am|we're) (very |so |really )?sorry|sorry|i apologize|unfortunately),? (but )?{_CANNOT}\b",
        rf"{_CANNOT} (help|assist|comply|fulfil+|provide|do that|do this|answer that|answer this|support)\b",
        r"i (must|have to) (respectfully )?decline\b",
        r"as (an ai|a) language model,? i\b",
    ),
    "de": (
        r"(es )?tut mir leid, (aber )?(ich kann|dabei kann ich|das kann ich)\b",
        r"(entschuldigung|leider), (aber )?ich kann\b.{0,60}\bnicht\b",
        r"(dabei|damit) kann ich (dir |ihnen )?(leider )?nicht\b",
        r"als (ki-)?sprachmodell\b",
    ),
    "fr": (
        r"(je suis )?désolée?, (mais )?je ne (peux|suis)\b",
        r"je ne (peux pas|suis pas en mesure de?) (vous|t'|d'|te )",
        r"en tant que modèle de langage\b",
    ),
    "es": (r"lo siento,? (pero )?no puedo\b", r"no puedo ayudar", r"como modelo de lenguaje\b"),
    "it": (r"mi dispiace,? (ma )?non posso\b", r"non posso aiutar", r"come modello linguistico\b"),
    "pt": (r"(desculpe|sinto muito|lamento),? (mas )?não posso\b", r"não posso ajud", r"como modelo de linguagem\b"),
    "ru": (r"(извините|простите|к сожалению),? (но )?я не могу\b", r"я не могу помочь"),
    "zh": (
        r"(很)?(抱歉|对不起)[，,]? ?我(无法|不能)",
        r"我(无法|不能)(提供|帮助|协助)",
        r"作为一个?(人工智能|ai)(语言)?模型",
    ),
    "ar": (
        r"(عذر[اً]{1,2}|آسف|آسفة|أعتذر|المعذرة|للأسف)[،,]? ?(ولكن |لكن |لكنني )?(لا|لن) (أستطيع|يمكنني|أتمكن)",
        r"(لا|لن) (أستطيع|يمكنني|أتمكن) (من )?(مساعد|تقديم|المساعد|القيام|الإجابة)",
        r"بصفتي (نموذج|مساعد)",
    ),
    "hi": (
        r"(क्षमा (करें|कीजिए)|माफ़? (करें|कीजिए)|मुझे (खेद|अफ़?सोस) है)[,।]? ?(कि |लेकिन )?मैं .{0,60}नहीं (कर|दे|बता|लिख) सक",
        r"मैं (इसमें |इस .{0,20})?(आपकी )?(मदद|सहायता) नहीं कर सक",
    ),
    "ja": (r"申し訳(ありません|ございません)が、?.{0,60}(できません|できかねます|いたしかねます)",),
    "ko": (r"죄송(하지만|합니다만),? .{0,60}(없습니다|어렵습니다)",),
}
_REFUSAL = re.compile("|".join(f"(?:{pattern})" for patterns in REFUSALS.values() for pattern in patterns))
_BEFORE = re.compile(r"[\s>*_#\"'“”„«»`-]*")


def score_format(case: Case, text: str, finish_reason: str) -> dict[str, Score]:
    """All five metrics of one completion. Never raises, and takes well under a second for any text."""
    reference = case.body.get("answer")
    loop, refusal = looping_block(text), refusal_phrase(text)
    due = case.body.get("refuse") is True or (isinstance(reference, str) and refusal_phrase(reference))
    faults: dict[str, tuple[str, str] | None] = {
        "format.finished": None if finish_reason in ("eos", "stop") else (
            "truncated" if finish_reason == "length" else "aborted", f"it ended by {finish_reason}"),
        "format.nonempty": None if says_something(text) else ("empty", "nothing visible was said"),
        "format.no_loop": ("loop", f"it ends in repetitions of {quote(loop)}") if loop else None,
        "format.no_refusal": ("refusal", f"it begins with {quote(refusal)}")
        if refusal and not due else None,
    }  # fmt: skip
    scores = {
        metric: wrong(metric, SCORER, *fault) if fault else right(metric, SCORER) for metric, fault in faults.items()
    }
    return scores | {SAME_LANGUAGE: same_language(case, text)}


def same_language(case: Case, text: str) -> Score:
    """Score the answer's language; null if it cannot be compared with the `language` that the case names."""
    if (fault := language_fault(case.body, text)) is None:
        return right(SAME_LANGUAGE, SCORER)
    value, error_type, reason = fault
    say = cannot_say if value is None else wrong
    return say(SAME_LANGUAGE, SCORER, error_type, reason)


def looping_block(text: str) -> str | None:
    """The shortest block whose repetitions are the text's end (see above); None without one."""
    end = text[-LOOP_READ:][::-1]
    if len(end) < LOOP_LENGTH:
        return None
    for period, again in enumerate(_matches_of_itself(end), start=1):
        if period + again >= max(LOOP_LENGTH, LOOP_TIMES * period):
            return end[:period][::-1]
    return None


def _matches_of_itself(text: str) -> Iterator[int]:
    """Yield, for each shift from 1 on, how many characters from there equal the beginning of the text.

    This is the Z-array, computed as in Main and Lorentz (1984): the window is the match that reaches furthest to the
    right.
    """
    size = len(text)
    matches = [0] * size
    window_start = window_end = 0
    for shift in range(1, size // LOOP_TIMES + 1):
        length = min(window_end - shift, matches[shift - window_start]) if shift < window_end else 0
        while shift + length < size and text[length] == text[shift + length]:
            length += 1
        matches[shift] = length
        if shift + length > window_end:
            window_start, window_end = shift, shift + length
        yield length


def refusal_phrase(text: str) -> str | None:
    """The declared phrase that the text begins with."""
    start = _BEFORE.match(text)
    begin = text[start.end() : start.end() + REFUSAL_READ] if start else ""
    folded = re.sub(r"\s+", " ", begin.casefold().replace("’", "'").replace("*", ""))
    match = _REFUSAL.match(folded)
    return match.group() if match else None
