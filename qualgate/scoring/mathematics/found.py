r"""Find the final answer in a text.

1. The last `\boxed{…}` or `\fbox{…}`, with those before it that only commas or `and` part from it; or, if it begins
   later, what the last `answer is` or `answer:` says: its formulas, else its words to the end of the sentence
2. else the last formula: `$…$`, `\(…\)`, `\[…\]`
3. else the last line with anything on it, or the last number of it where the line is a sentence
"""

from __future__ import annotations

import re
from collections import deque

from qualgate.scoring.mathematics.exact import exact
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tree import Unread
from qualgate.scoring.outcome import quote
from qualgate.scoring.quantities import quantities
from qualgate.scoring.retraction import is_cut, not_meant

_BOX = re.compile(r"\\(?:boxed|fbox)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_MAX_JOINED = 16
_BETWEEN = re.compile(
    r"[\s$,;.]{0,20}(?:\\text\{)?\s{0,5}(?:and|or(?:[\s$]{1,5}[A-Za-z]\s?=)?)?\s{0,5}\}?[\s$,;]{0,20}"
)
_SAYS = re.compile(
    r"\banswer(?:\s*\*\*)?(?:\s{1,5}is\b|\s*[:=])\s*:?(?:\s*\*\*)?|(?:答案|答え|正解|정답)(?:是|为|為|は|은)?\s*[:：]?"
    r"|\b(?:antwort\sist|réponse\sest|respuesta\ses|resposta\sé|risposta\sè|ответ\s?:?)\s*:?",
    re.IGNORECASE,
)
# A `$` before a digit is money where the next one has a blank before it: `$5 and $6`.
_FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<!\\)\$(?![0-9][^$\n]*\s\$)([^$\n]+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL
)
_SENTENCE = re.compile(
    r"\.(?=\s|\Z)|。|では|です|입니다"
    r"|[,;]?\s{1,5}(?:because|since|which|where|I\s(?:hope|think|believe|guess))\b|,\s{1,5}(?:so|as|and so)\b|\s{2,5}\("
)
_DENIES = re.compile(r"[\s$*]*(?:(?:not|never|neither|unknown|nicht|pas|не)\b|不)", re.IGNORECASE)
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}")
_MONEY = str.maketrans("", "", "$€£¥₹")
MAX_LINE = 4_000  # characters of the end of a text, where no formula is marked
MAX_TAIL = 20_000  # characters of the end of a text in which formulas are looked for


def final_answer(text: str) -> str:
    """Return the final answer as it is written. Unread if the last box is not closed, or the text is empty."""
    return _found(text)[0]


def why_not_meant(text: str) -> str:
    """Return why the final answer is not meant as such (denied, taken back, cut off); "" if it is."""
    _, start, end, stated = _found(text)
    return "the text is cut off" if is_cut(text[start:]) and not stated else not_meant(text[:start], text[end:])


def _found(text: str) -> tuple[str, int, int, bool]:
    """Return the final answer, its begin and latest end, and whether a box or a sentence states it.

    The last statement wins over a box before it; without either it is the last formula, else the last line.
    """
    last = deque(_BOX.finditer(text), maxlen=1)
    box = last[0].start() if last else -1
    closed = _content(text, last[0].end(), len(text)) if last else None
    statement = None
    for statement in _SAYS.finditer(text):  # noqa: B007 - the last one
        pass
    if statement is not None and statement.start() > (closed[1] if closed else box):
        following = text[statement.end() : statement.end() + MAX_LINE]
        if not _DENIES.match(following) and (answer := _stated_answer(following)):
            start = max(statement.end(), text.find(answer, statement.end()))
            return answer, start, start + len(answer), True
    if box >= 0:
        return boxed(text), box, closed[1] if closed else len(text), True
    begin = max(0, len(text) - MAX_TAIL)
    formulas = list(_FORMULA.finditer(text, begin))
    if formulas:
        return _inside(formulas[-1]), formulas[-1].start(), formulas[-1].end(), False
    lines = [line for line in text[begin:].splitlines() if line.strip()]
    if not lines:
        raise Unread("malformed", "the answer is empty")
    answer = _of_line(lines[-1][-MAX_LINE:])
    index = text.rfind(answer)
    return (answer, index if index >= 0 else len(text), index + len(answer) if index >= 0 else len(text), False)


def boxed(text: str) -> str:
    """Return the content of the last box and of those that belong to it. Unread if it is not closed."""
    contents: list[str] = []
    end = len(text)
    for box in reversed(deque(_BOX.finditer(text), maxlen=_MAX_JOINED)):
        content = _content(text, box.end(), end)
        if contents and (content is None or not _BETWEEN.fullmatch(text, content[1], end)):
            break
        if content is None:
            raise Unread("malformed", "the last box is not closed")
        if not contents or contents[-1] != content[0]:
            contents.append(content[0])
        end = box.start()
    return ", ".join(reversed(contents))


def _content(text: str, position: int, limit: int) -> tuple[str, int] | None:
    """Return the content and the end of the box whose name ends at `position`; None if it is not closed."""
    while position < limit and text[position].isspace():
        position += 1
    if position < limit and text[position] != "{":  # `\boxed 5`
        end = min((index for sign in "$\n" if (index := text.find(sign, position, limit)) >= 0), default=limit)
        return text[position:end].strip(), end
    depth = 0
    for match in _BRACE.finditer(text, position, limit):
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0 and match[0] == "}":
            return text[position + 1 : match.start()].strip(), match.end()
    return None


def _inside(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group is not None).strip()


def _stated_answer(following: str) -> str:
    """Return the answer behind `answer is`: the formulas that the line begins with, or its words.

    Several formulas are joined by commas.
    """
    line = next((line for line in following.splitlines() if line.strip(" *")), "")
    if line.strip() in (r"\[", "$$"):
        line = following.replace("\n", " ")
    formulas = list(_FORMULA.finditer(line))
    if formulas:
        last = 0
        while last + 1 < len(formulas) and _BETWEEN.fullmatch(line, formulas[last].end(), formulas[last + 1].start()):
            last += 1
        return ", ".join(_inside(match) for match in formulas[: last + 1])
    cut = _SENTENCE.search(line)
    return line[: cut.start() if cut else None].strip(" *\t")


def _of_line(line: str) -> str:
    """Return the line if it is an answer by itself, else the last number of the sentence."""
    line = line.strip(" *\t\r`>#")
    if len(_WORD.findall(line)) < 3:
        return line
    return _last_number(line)


def _last_number(line: str) -> str:
    """Return the last number of a sentence, or the sentence if it has no number.

    Unread if that number is a piece of an expression. A number that LaTeX would read otherwise is written as a
    fraction.
    """
    last = deque(quantities(line), maxlen=1)
    if not last:
        return line
    number = last[0]
    if number.value is None and not number.parts:
        raise Unread("unknown", f"the last number of {quote(line)} is not read: {number.unread}")
    share = re.search(rf"{re.escape(number.text)}\s?\\?%", line)
    text = number.text.translate(_MONEY) + (r"\%" if share else "")
    try:
        plain = number.value is None or exact(read(number.text.translate(_MONEY))) == number.value
    except Unread:
        plain = False
    return text if plain else f"{number.value}" + (r"\%" if share else "")
