r"""LaTeX or plain text → tokens. What only arranges a formula (`\left`, `\,`, `\displaystyle`, `$`) is dropped.

A token is its kind and its text: number (as written, its thousands joined; `0.1(6)` for a repeating decimal), word
(letters side by side), text (what `\text{…}` holds), command (its name), begin, end (an environment's name), symbol
(one character; `\{` and `\}` for braces that are shown, `\\` for a new row).
"""

from __future__ import annotations

import re
import unicodedata

from qualgate.scoring.mathematics.tree import Unread
from qualgate.scoring.outcome import quote

MAX_CHARACTERS = 4_000
MAX_DIGITS = 1_000  # of one number

Token = tuple[str, str]

_SIGNS = {
    "−": "-", "–": "-", "×": r"\times ", "÷": r"\div ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": "*", "∞": r"\infty ",
    "√": r"\sqrt ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ",
    "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ", "°": r"^\circ ", "²": "^2", "³": "^3", "′": "'",
    "π": r"\pi ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ", "γ": r"\gamma ", "λ": r"\lambda ", "φ": r"\phi ",
    "ω": r"\omega ", "μ": r"\mu ", "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "ℝ": r"\mathbb{R}",
    "£": "", "€": "", "¥": "", "\u00a0": " ", "\u200b": "",
}  # fmt: skip
_BY_SIGN = str.maketrans(_SIGNS)
_TEXT = r"(?:text(?:bf|it|rm|normal|sf|tt)?|mbox|hbox|math(?:rm|bf|it|sf|tt|cal|bb|frak|normal)|operatorname\*?|bf|rm)"
_ENVIRONMENT = re.compile(r"(?:[pbBvV]?matrix|smallmatrix|array|cases|aligned|align\*?)")

_BY_BLANKS = r"(?<![_^])[1-9][0-9]{0,2}(?:(?:[\ ~\u2009\u202f]|\\[\ ;:])[0-9]{3})+(?![0-9]|\s*/\s*[0-9]{3})"
# Thousands: `1,234` where no bracket is open; `1{,}234`, `1\,234` and `1 234` everywhere.
_TOKEN = re.compile(
    r"""(?P<space>(?:\s|~|\$|\\[$,;:!>\ ]|\\(?:q?quad|left|right|m?left|[bB]igg?[lrm]?|displaystyle|textstyle|limits
                   |nolimits|mathstrut|hfill|hspace\{[^{}]{0,20}\}|phantom\{[^{}]{0,20}\})(?![A-Za-z])\.?)+)
      |(?P<repeating>[0-9]{0,40}\.[0-9]{0,40}\\(?:overline|bar|dot)\{[0-9]{1,40}\})
      |(?P<number>(?:[0-9]{1,3}(?:(?:,|\{,\}|\\,)[0-9]{3})+(?![0-9])|"""
    + _BY_BLANKS
    + r"""|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)
      |(?P<wrapped>\\"""
    + _TEXT
    + r"""\s*\{(?P<inner>[^{}$]{0,200})\})
      |\\(?P<edge>begin|end)\s*\{(?P<environment>[A-Za-z]{1,20}\*?)\}(?:\{[lcr|\ ]{0,40}\}|\[[^\]]{0,9}\])?
      |\\(?P<command>[A-Za-z]+)
      |\\(?P<escaped>[{}|%#&_\\])
      |(?P<word>[^\W\d_]+)
      |(?P<symbol>[-+*/^_(){}\[\]|,;:=<>!&'%.?])""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"[0-9]{1,40}(?:\.[0-9]{1,40})?")
_FEW = re.compile(rf"(?:[0-9]{{1,3}}(?:(?:\{{,\}}|\\,)[0-9]{{3}})+(?![0-9])|{_BY_BLANKS}|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+")
_OVER = re.compile(r"\{([^{}]{1,200})\\over\b([^{}]{1,200})\}")
_POWER_OF_TEN = re.compile(r"[eE]([-+]?[0-9]{1,3})(?![0-9A-Za-z.])")
_LONE_UNIT = re.compile(r"(?<=[0-9}])\s+([mgshLlNJWVAKCF])(?:\^\{?[23]\}?)?\s*\Z")
_OPENS, _CLOSES = ("(", "[", r"\{"), (")", "]", r"\}")
_JOINED = re.compile(r"[^0-9.]")


def tokens(text: str) -> list[Token]:
    """Split a text into tokens. Unread for a character that is not mathematics, and for too long a text or number."""
    if len(text) > MAX_CHARACTERS:
        raise Unread("limit", f"an expression of {len(text):,} characters, {MAX_CHARACTERS:,} are read")
    text = _OVER.sub(r"\\frac{\1}{\2}", text.replace(r"\!", "").translate(_BY_SIGN))
    text = _LONE_UNIT.sub(r"\\text{\1}", text)
    token_list: list[Token] = []
    position = depth = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _no_token(text[position])
        if match["number"] and depth and "," in match["number"]:
            match = _FEW.match(text, position)
            assert match is not None
            token_list.append(("number", _digits(match[0])))
        elif (token := _token(match)) is not None:
            token_list.append(token)
            depth += (token[0] == "symbol") * ((token[1] in _OPENS) - (token[1] in _CLOSES))
        position = match.end()
        if token_list and token_list[-1][0] == "number" and (ten := _POWER_OF_TEN.match(text, position)):
            token_list[-1] = ("number", token_list[-1][1] + "e" + ten[1])
            position = ten.end()
    return token_list


def _token(match: re.Match[str]) -> Token | None:
    """Return the token of a match; None for white space. Unread for an environment that is not read."""
    match match.lastgroup:
        case "space":
            return None
        case "repeating":
            return "number", re.sub(r"\\[a-z]+\{([0-9]+)\}", r"(\1)", match[0])
        case "number":
            return "number", _digits(match[0])
        case "environment":
            if not _ENVIRONMENT.fullmatch(match["environment"]):
                raise Unread("unknown", f"the environment {match['environment']} is not read")
            return match["edge"], match["environment"]
        case "escaped":
            sign = match["escaped"]
            return "symbol", "\\" + sign if sign in "{}\\" else sign
        case "wrapped":
            inner = match["inner"].strip()
            if _NUMBER.fullmatch(inner):
                return "number", inner
            plain = not match[0].startswith((r"\text", r"\mbox", r"\hbox")) and inner.isalpha()
            return ("word" if plain and not match[0].startswith(r"\mathbb") else "text"), inner
    kind = match.lastgroup or ""
    return kind, match[kind]


def _digits(written: str) -> str:
    joined = _JOINED.sub("", written)
    if len(joined) > MAX_DIGITS:
        raise Unread("limit", f"a number of {len(joined):,} digits, {MAX_DIGITS:,} are read")
    return joined


def _no_token(character: str) -> Unread:
    if unicodedata.category(character) == "Nd":
        return Unread("unknown", f"the digit {quote(character)} is not one of 0 to 9")
    kind = "malformed" if character.isascii() else "unknown"
    return Unread(kind, f"the character {quote(character)} is not read as mathematics")
