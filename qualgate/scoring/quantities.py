"""Numbers as texts write them: thousands, decimals, fractions, powers, ratios, and what continues an expression.

| written | read |
|---|---|
| `1,234.50` `1 234 567` `1'234` `1_234` `1{,}234` `1.234,56` `12,34,567` | thousands and decimals |
| `12,5` `1,234` `1.234` `1 234` | the likelier reading; the other one is kept as possible |
| `1/4` `\\frac14` `½` `2 1/2` | a fraction, a mixed one |
| `3 × 10^5` `3e5` `2^10` `10⁵` | their value |
| `= - 5` `−5` `-$5` | the sign; `5 - 3` and `5-3` are no number |
| `3:7` `5:30` `2026-01-05` `5-7` `1.2.3` | several numbers in one, equal to the same alone |
| `7\\sqrt{2}` `3π` `x/4` `2 + 3` `log 1000` | nothing: the last number only continues an expression |
| `m^3` `x_2` `H2O` | not as a number at all |

`%`, units and currencies are not read: `60%` is 60.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

LONGEST = 20_000  # characters of a line that are read, from its end
MAX_DIGITS = 400  # of one number, and of what a power makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of a text. value: None if it cannot be read. others: its other possible values. parts: of a ratio, a
    date, a range. part: whether it belongs to a pair, a bound, a call. unread: why there is no value. too_much: the
    error type of a number with too many digits."""

    text: str
    value: Fraction | None = None
    others: tuple[Fraction, ...] = ()
    parts: tuple[str, ...] = ()
    part: bool = False
    unread: str = ""
    too_much: str = ""


_POWER = "\ue000"  # before an exponent that was raised: `10⁵`, but perhaps a footnote
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_HYPHENS = dict.fromkeys(map(ord, "\u2010\u2011\u2212\uff0d\ufe63"), "-")
_REWRITTEN = (
    (re.compile(r"(\\(?:boxed|fbox)\s?\{)\s?[-–]\s{1,3}(?=[0-9.])"), r"\1-"),
    # A sign stays with what it stands before.
    (
        re.compile(r"(?<![\w)\]}])[-–]\s?(?=\\[dtc]?frac|\\(?:boxed|fbox|text|mathrm)\s?\{\s?[0-9.]|[¼-¾⅐-⅞])"),
        "-\ue001",
    ),
    (re.compile(r"(?<![\w)\]}])[-–]\(([0-9.,]{1,40})\)"), r"-\1"),
    (re.compile(r"\\[dtc]?frac\s?\{\s?([-−]?[0-9]{1,20})\s?\}\s?\{\s?([0-9]{1,20})\s?\}"), r" \1/\2 "),
    (re.compile(r"\\[dtc]?frac\s?([0-9])\s?([0-9])"), r" \1/\2 "),
    *[(re.compile(r"\\(?:boxed|fbox|text|mathrm|mathbf|textbf)\s?\{([^{}]{0,200})\}"), r" \1")] * 2,
    (re.compile(r"\\sqrt\s?\[[0-9]{1,3}\]|[∛∜]"), "√"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"(?<=[0-9])\\[,;: ](?=[0-9]{3})|(?<=[0-9])~(?=[0-9]{3})"), "\u202f"),
    (re.compile(r"\\[!,;: ]|\\left|\\right|\\displaystyle"), " "),
    (re.compile(r"\\([$%#&])"), r"\1"),
    (re.compile(r"\ue001\s*"), ""),
    (re.compile(r"(?<=[$({])\s?[-–]\s{1,3}(?=[0-9.])"), "-"),
    (re.compile(r"\\times|\\ast"), "×"),
    (re.compile(r"\\cdot"), "·"),
    (re.compile(r"(?<=[0-9)])\*\*(?=[-0-9(])"), "^"),
    (re.compile(r"\*\*|__|`"), ""),
    (re.compile(r"(?<![\w)*])\*(?=[^\s*])([^*\n]{1,80})(?<=\S)\*(?!\w)"), r"\1"),
    (re.compile(r"\^\s?\{\s?([-−+]?[0-9]{1,10})\s?\}"), r"^\1"),
    (re.compile(r"<sup>([-−+]?[0-9]{1,10})</sup>"), rf"{_POWER}\1"),
    (re.compile(r"(?<=[0-9)])([⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]{1,10})"), lambda match: _POWER + match[1].translate(_RAISED)),
    (re.compile("(?<=-)[¼-¾⅐-⅞]"), lambda match: "{0.numerator}/{0.denominator} ".format(_vulgar(match[0]))),
    (re.compile("[¼-¾⅐-⅞]"), lambda match: " {0.numerator}/{0.denominator} ".format(_vulgar(match[0]))),
    (re.compile(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]{1,10}"), ""),
)

_BLANK = "\u00a0\u2009\u202f"
_RUN = (
    rf"(?:[0-9]{{1,3}}(?:[ ][0-9]{{3}}(?![0-9]))+(?:[.,][0-9]++)?|[0-9]++(?:[.,'’_{_BLANK}][0-9]++)*+|(?<!\.)\.[0-9]++)"
)
_NUMBER = re.compile(
    rf"""(?P<sign>(?<![\w)\]}}])[-+−–])?(?:(?:US|CA|AU|NZ|HK)?[$€£¥₹₩₽₺₫](?P<negative>[-−])?)?
        (?<![A-Za-z0-9_])(?<![0-9][.,'’_])(?P<run>{_RUN})
        (?P<exponent>[eE][-+]?(?P<power>[0-9]++)(?![A-Za-z]))?""",
    re.VERBOSE,
)
_BEHIND = re.compile(
    rf"""(?P<scientific>\s?[×x*·]\s?10\s?[\^{_POWER}]\s?\(?(?P<ten>[-−+]?[0-9]{{1,3}})(?![0-9])\)?)
       |(?P<raised>\s?[\^{_POWER}]\s?\(?(?P<to>[-−+]?[0-9]{{1,3}})(?![0-9.])\)?)
       |(?P<chain>(?:\s?(?P<link>:)\s?(?=[0-9])|(?P<dash>[-–—])(?=[0-9])|(?P<dot>/)(?=[0-9]++/[0-9]))
          [0-9]++(?:[.:/–—-][0-9]++)*+)
       |(?P<over>\s?/\s?(?P<under>[0-9]++)(?![0-9/]|[.,][0-9]))
       |(?P<mixed>[ ]\s?(?P<above>[0-9]++)\s?/\s?(?P<below>[0-9]++)(?![0-9/]|[.,][0-9]))
       |(?P<times>\s?(?:\\?sqrt|√|\\pi|π|\\ln|\\log|\\sin|\\cos)|pi\b|\.?\\overline|\.\()
       |(?P<variable>[xyzni](?![A-Za-z0-9])|\s?[\^*·×]\s?\(?(?!\\circ)[A-Za-z\\]|\}}\s?\{{|_\{{?[0-9]
          |\s(?:squared|cubed|factorial|dozens?)\b)
       |(?P<scale>\s?(?:(?P<word>hundred|lakh|crore|thousand|million|billion|trillion|millones|millions|milhões|milliards?|millionen
          |milliarden|mio|mrd)\b|(?P<sign>[千万億亿])|(?P<letter>k|K|M|bn)\b))""",
    re.VERBOSE,
)
_SCALES = {
    "hundred": 2, "lakh": 5, "crore": 7, "thousand": 3, "million": 6, "billion": 9, "trillion": 12,
    "millones": 6, "millions": 6, "milhões": 6,
    "milliard": 9, "milliards": 9, "millionen": 6, "milliarden": 9, "mio": 6, "mrd": 9, "千": 3, "万": 4, "億": 8,
    "亿": 8, "k": 3, "K": 3, "M": 6, "bn": 9,
}  # fmt: skip
_NOT_A_NUMBER = re.compile(
    rf"(?:[A-Za-z)\]}}][\^{_POWER}]|_\{{?|<sub>|\bp?mod\}}?\s?)[-−+({{]{{0,2}}\Z|[0-9.)%]\s?\[\Z", re.IGNORECASE
)
_CONTINUES = re.compile(
    r"(?:[\w)\]}]/[({]?|[0-9)\]}]\s?[+×·*÷^]\s?[({]?|[0-9]\s?x\s?|(?<![A-Za-z])[a-z]\s?[+×·*÷]\s?"
    r"|(?:[0-9)\]}]|(?<![A-Za-z])[a-z])\s?[-−–]\s?|[0-9)]\s(?:plus|minus|times|divided\sby|over)\s|(?:±|\\pm)\s?|\\overline\{"
    r"|(?:\\?sqrt|√|\\pi|π|\\?\b(?:log|ln|lg|sin|cos|tan|exp))(?:_\{?[0-9]{1,3}\}?)?\s?[({\[]{0,2}|\}\s?\{|\.\("
    r"|\b(?:roots?|sqrt|half|twice|double|thrice|reciprocal|inverse|factorial|square|cube)\s(?:of\s)?(?:the\s)?)\Z"
)
# A part of something else, which may be meant all the same: a bound, a pair, a call, hours and minutes.
_PART = re.compile(
    r"(?:!=\s?|\bnot\s|n['’]t\s(?:be\s)?|(?:(?<![<>])(?<![A-Za-z\"'/][A-Za-z\"'/])[<>]|[≤≥≠])=?\s?|\\(?:geq?|leq?|gt|lt|neq?)\s?|\(\s?[-−]?[0-9.]{1,20},\s?|(?<![A-Za-z])[A-Za-z]\(|\bratio\b[^0-9]{0,12}[0-9.,]{1,12}\sto\s"
    r"|\bbetween\s[0-9.,]{1,12}\sand\s|[0-9]\s?(?:hours?|hrs?|h|feet|foot|ft|lbs?|pounds?|minutes?|min|days?|weeks?|years?"
    r"|months?|yards?|yd|dollars?|euros?|°|′)\s?(?:,\s|and\s)?)\Z",
    re.IGNORECASE,
)
_MINUS = re.compile(r"(?<![0-9)])\s?\b(?:negative|minus)\s\Z", re.IGNORECASE)
_SIGN_APART = re.compile(r"(?:[=≈:]|\bis|\bequals)\s{0,3}[-−–]\s{1,3}[$€£¥₹]?\Z")


def quantities(line: str) -> Iterator[Quantity]:
    """The numbers of a line, from left to right."""
    line = line[-LONGEST:].translate(_HYPHENS)
    if not line.isascii():
        line = "".join(str(unicodedata.decimal(c)) if c.isdecimal() and not c.isascii() else c for c in line)
    for pattern, new in _REWRITTEN:
        line = pattern.sub(new, line)
    position = 0
    while match := _NUMBER.search(line, position):
        position = match.end()
        before = line[max(0, match.start() - 40) : match.start()]
        if _NOT_A_NUMBER.search(before):
            continue
        quantity, position = _with_what_follows(match, line)
        separate_sign = _SIGN_APART.search(before) or _MINUS.search(before)
        if (match["sign"] or match["negative"] or ("-" if separate_sign else "+")) != "+":
            quantity = _negative(quantity)
        elif not match["sign"] and _CONTINUES.search(before):
            quantity = Quantity(text=quantity.text, unread="it continues an expression")
        elif quantity.value is not None and _PART.search(before):
            quantity = replace(quantity, part=True)
        yield quantity


def _with_what_follows(match: re.Match[str], line: str) -> tuple[Quantity, int]:
    """Read a matched number with its exponent, scale, power or fraction; return it and the position behind it."""
    if sum(map(str.isdigit, match["run"])) > MAX_DIGITS:
        return _too_much("number_too_long", f"a number of more than {MAX_DIGITS} digits"), match.end()
    if len(match["power"] or "") > 3:
        return _too_much("number_too_large", "a number with an exponent of more than three digits"), match.end()
    readings = _readings(match["run"])
    if match["exponent"]:
        power = Fraction(10) ** int(match["exponent"][1:])
        readings = [None if reading is None else reading * power for reading in readings]
    behind = _BEHIND.match(line, match.end())
    text = line[match.start() : behind.end() if behind else match.end()].replace(_POWER, "^")
    value, other_readings = readings[0], tuple(reading for reading in readings[1:] if reading is not None)
    end = behind.end() if behind else match.end()
    if behind is None:
        return _quantity(text, value, other_readings), end
    if behind["chain"] or (value is None and not other_readings):
        return Quantity(text=text, parts=tuple(re.findall(r"[0-9]+|[^0-9\s]", text))), end
    if behind["times"]:
        return Quantity(text=text, unread="it continues an expression"), end
    if behind["variable"]:
        possible = () if value is None else (value,)
        return Quantity(text=text, others=possible, unread="it continues an expression"), end
    if behind["scale"]:
        power = _SCALES[(behind["word"] or behind["sign"] or behind["letter"]).casefold() if behind["word"] else
                        behind["sign"] or behind["letter"]]  # fmt: skip
        scaled, plain = _times(value, Fraction(10), str(power)), () if value is None else (value,)
        if behind["letter"]:
            return _quantity(text, value, () if scaled is None else (scaled,)), end
        return _quantity(text, scaled, plain), end
    if behind["scientific"]:
        return _quantity(text, _times(value, Fraction(10), behind["ten"]), ()), end
    if behind["raised"]:
        possible = (value,) if value is not None and _POWER in behind[0] else ()
        return _quantity(text, _raised(value, behind["to"]), possible), end
    if behind["mixed"]:
        return _mixed(match, behind, value, text, line)
    under = int(behind["under"][:MAX_DIGITS])
    return _quantity(text, None if value is None or not under else value / under, ()), end


def _mixed(
    match: re.Match[str], behind: re.Match[str], value: Fraction | None, text: str, line: str
) -> tuple[Quantity, int]:
    """Read a mixed number such as `2 1/2`; of `12 3/2` or `1.5 1/2` only the first number.

    value: of the first number, which `match` has; behind: the match of the fraction; text: of both. Returns the number
    and the position behind it.
    """
    above, below = int(behind["above"][:MAX_DIGITS]), int(behind["below"][:MAX_DIGITS])
    if value is None or value.denominator != 1 or not 0 < above < below or not match["run"].isdigit():
        return _quantity(line[match.start() : match.end()], value, ()), match.end()
    return _quantity(text, value + Fraction(above, below), ()), behind.end()


def _quantity(text: str, value: Fraction | None, other_readings: tuple[Fraction, ...]) -> Quantity:
    if value is None and not other_readings:
        parts = tuple(re.findall(r"[0-9]+|[^0-9\s]", text))
        return Quantity(text=text, parts=parts, unread="it is several numbers in one")
    return Quantity(
        text=text, value=value, others=other_readings, unread="" if value is not None else "it can be read two ways"
    )


def _too_much(error_type: str, reason: str) -> Quantity:
    return Quantity(text="", unread=reason, too_much=error_type)


def _negative(quantity: Quantity) -> Quantity:
    """Return a quantity with the opposite sign, in all its readings."""
    return replace(
        quantity,
        text=f"-{quantity.text.lstrip('-−–')}",
        value=None if quantity.value is None else -quantity.value,
        others=tuple(-reading for reading in quantity.others),
        parts=("-", *quantity.parts) if quantity.parts else (),
    )


def _readings(run: str) -> list[Fraction | None]:
    """Return the values that a run of digits and separators may have, the likeliest first; None for an unknown one."""
    digits = re.sub(r"[^0-9]", "", run)
    marks = re.sub(r"[0-9]", "", run)
    groups = re.split(r"[^0-9]", run)
    in_threes = len(groups[0]) in (1, 2, 3) and all(len(group) == 3 for group in groups[1:])
    if not marks:
        return [Fraction(int(run))]
    last = groups[-1]
    decimal = _decimal("".join(groups[:-1]), last)
    integer = Fraction(int(digits))
    if len(set(marks)) == 1 and marks[0] not in ".,":
        unambiguous = in_threes and (marks[0] != " " or len(marks) > 1 or last[0] == "0")
        return [integer] if unambiguous else [integer, Fraction(int(last))]
    if marks == ".":
        return [decimal, integer] if in_threes and groups[0] != "0" and groups[0] else [decimal]
    if marks == ",":
        return [integer, decimal] if in_threes and groups[0] != "0" else [decimal, Fraction(int(last))]
    if len(set(marks)) == 1:
        indian = marks[0] == "," and len(last) == 3 and len(groups[0]) < 3 and {*map(len, groups[1:-1])} == {2}
        if marks[0] == "," and (in_threes or indian):
            return [integer]
        return [None, integer] if in_threes else [None] if marks[0] == "." else [None, Fraction(int(last))]
    head = groups[:-1]
    grouped = len(head[0]) in (1, 2, 3) and all(len(group) == 3 for group in head[1:])
    one_mark = len(set(marks[:-1])) == 1 and marks[-1] in ".," and marks[0] != marks[-1]
    return [decimal] if grouped and one_mark else [None]


def _decimal(whole: str, decimals: str) -> Fraction:
    return Fraction(int(whole or 0)) + Fraction(int(decimals), 10 ** len(decimals))


def _raised(base: Fraction | None, exponent: str) -> Fraction | None:
    power = int(exponent.replace("−", "-"))
    if base is None or (not base and power < 0):
        return None
    size = max(len(str(base.numerator)), len(str(base.denominator)))
    return base**power if size * abs(power) <= MAX_DIGITS else None


def _times(value: Fraction | None, base: Fraction, exponent: str) -> Fraction | None:
    power = _raised(base, exponent)
    return None if value is None or power is None else value * power


def _vulgar(character: str) -> Fraction:
    return Fraction(unicodedata.numeric(character)).limit_denominator(10)
