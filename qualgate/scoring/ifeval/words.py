"""Sentences and capital words, counted as NLTK counts them for IFEval, without NLTK and its trained data.

Sentences: the rules of Punkt (Kiss & Strunk 2006) as NLTK applies them, with a list of abbreviations and of words that
start sentences in place of the trained model. So counts can differ from NLTK's English model after an abbreviation or
a number that it learned and we do not list. Kept where it surprises: `?!` ends two sentences, a sentence end needs
white space, a bracket or a quote after it, and a line break alone ends none.

Capital words: the Penn Treebank's rules for parting words (`CAN'T` is CA and N'T, `I'M` is I and 'M), of which only
those that make more or fewer capital words are applied.
"""

from __future__ import annotations

import re

# Written without their final point, in lower case.
_ABBREVIATIONS = """
mr mrs ms dr prof rev hon gen col maj capt lt sgt sen rep gov pres sr jr st messrs mt ft jan feb mar apr jun jul aug sep
sept oct nov dec mon tue wed thu thurs fri sat inc ltd co corp bros vs v etc e.g i.e a.m p.m u.s u.k u.n u.s.a d.c ph.d
m.d b.a m.a ave blvd rd dept est fig no vol cf al approx
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
# Capitalized after an abbreviation, an initial or dots, these start a sentence; another capital may start a name.
_STARTERS = """
the a an this that these those he she it they we you i his her its their our my there here when where while if as but
and so then however although in on at for from with to of by after before since what who why how
"""
STARTERS = frozenset(_STARTERS.split())
_END = re.compile(r"[.?!](?=[)\";}\]*:@'({\[?!]|\s+(\S))")
_BEFORE = 64  # characters that a word is looked back for
_CUT = re.compile(r"[\s)\";}\]*:@'({\[?!,]")
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")
_WORD = re.compile(r"[^\W\d_]+")


def sentences(text: str) -> int:
    text = text.rstrip()
    count, start = 0, 0
    for end in _END.finditer(text):
        if _ends(text, end):
            count += 1
            start = end.end()
    return count + bool(text[start:].strip())


def _ends(text: str, end: re.Match[str]) -> bool:
    place = end.start()
    if text[place] != ".":
        return True
    before = _CUT.split(text[max(0, place - _BEFORE) : place])[-1]
    if not before:
        return True
    following = end.start(1) if end[1] else place + 1
    word = _WORD.match(text, following, following + _BEFORE)
    capital = text[following].isupper()
    starts = capital and word is not None and word[0].lower() in STARTERS
    if before.endswith("."):
        return starts  # dots
    initial = len(before) == 1 and before.isalpha()
    if before.lower() in ABBREVIATIONS or before.lower().rpartition("-")[2] in ABBREVIATIONS:
        return starts and not initial
    if initial or _NUMBER.fullmatch(before):
        return text[following] not in ";:,.!?" and (not initial or not capital or starts)
    return True


# Pieces that stand alone in the Treebank; between them, what follows an apostrophe.
_PIECE = re.compile(r"--+|\.\.+|[\s;@#$%&?!()\[\]{}<>\"“”«»„`‘’*]+|[:,](?!\d)")
_ENDING = re.compile(r"(?i)(?<=[^'\s])(?:'s|'m|'d|'ll|'re|'ve|n't|')$")
_PARTED = {"cannot": 2, "gimme": 2, "gonna": 2, "gotta": 2, "lemme": 2, "wanna": 2}


def capital_words(text: str) -> int:
    """How many of the words are in capitals, as str.isupper has it."""
    return sum(map(_capitals, filter(None, _PIECE.split(text))))


def _capitals(word: str) -> int:
    if ending := _ENDING.search(word):
        return ending[0].isupper() + _capitals(word[: ending.start()])
    return _PARTED.get(word.lower(), 1) if word.isupper() else 0
