"""Sentences and capital words, counted as NLTK counts them for IFEval, without NLTK and its trained data.

Sentences: the rules of Punkt (Kiss & Strunk 2006) as NLTK applies them, with a list of abbreviations and of words that
start sentences in place of the trained model. So counts can differ from NLTK's English model after an abbreviation or
an initial that one of the two does not know. Kept where it surprises: `e.g.` and `etc.` end a sentence, `vitamin C.`
does not, and in a numbered list each number does when a capital follows; a line break alone ends none.

Capital words: the Penn Treebank's rules for parting words (`CAN'T` is CA and N'T, `I'M` is I and 'M), of which only
those that make more or fewer capital words are applied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Written without their final point, in lower case.
_ABBREVIATIONS = """
mr mrs ms messrs dr prof ph.d m.b.a jr sr st gen col maj lt adm sen rep reps inc ltd co corp cos bros vs v ft mg yr ave
jan feb aug sep sept oct nov dec tues wed fri a.m p.m u.s u.k u.n u.s.a u.s.s.r d.c l.a n.y n.j n.c s.c n.h n.m n.d
ala ariz calif colo conn fla ga ill kan ky mich minn nev okla ore pa tenn va vt wash wis c d e f g h k l m n p r s t w
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
# Capitalized after an abbreviation, an initial or dots, these start a sentence; another capital may start a name.
_STARTERS = """
the this these those that he she it they we you i his her its their our my there here when where while if as but and so
then however although though yet since in on at for from with after before what who why how some many most both even
despite instead meanwhile moreover indeed thus under among according
"""
STARTERS = frozenset(_STARTERS.split())
_CLOSING = "\"')\\]}‘’“”«»"
_END = re.compile(rf"[.?!](?=[{_CLOSING};*:@(\[{{?!]|\s+(\S))")
_CLOSERS = re.compile(rf"[{_CLOSING}]+(?=\s|--|\Z)")
_BEFORE = 64  # characters that a word is looked back for
_SPACE = re.compile(r"\s")
_CUT = re.compile(r"[\s\");}\]\[{(:*@]")
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")
_WORD = re.compile(r"[^\W\d_]+")


def sentences(text: str) -> int:
    text = text.rstrip()
    count = start = 0
    for end in _last_in_each_word(text):
        if _ends(text, end):
            count += _holds_text(text[start : end.end()])
            start = end.end()
    return count + _holds_text(text[start:])


def _holds_text(sentence: str) -> bool:
    """Closing marks at its start belong to the sentence before."""
    closers = _CLOSERS.match(sentence)
    return bool(sentence[closers.end() if closers else 0 :].strip())


def _last_in_each_word(text: str) -> Iterator[re.Match[str]]:
    """Where sentences may end: at one place in each run of characters without white space."""
    last = None
    for end in _END.finditer(text):
        if last is not None and (_stands_alone(text, last) or _SPACE.search(text, last.end(), end.start())):
            yield last
        last = end
    if last is not None:
        yield last


def _stands_alone(text: str, end: re.Match[str]) -> bool:
    return end.start() == 0 or text[end.start() - 1].isspace()


def _ends(text: str, end: re.Match[str]) -> bool:
    place = end.start()
    word = _SPACE.split(text[max(0, place - _BEFORE) : place])[-1]
    if text[place] != "." or "?" in word or "!" in word:
        return True
    before = _CUT.split(word)[-1].lstrip("`&#-,")
    following = end.start(1) if end[1] else place + 1
    capital = text[following].isupper()
    found = _WORD.match(text, following)
    starts = capital and found is not None and found[0].lower() in STARTERS
    if before.endswith("."):
        return starts  # dots
    initial = len(before) == 1 and before.isalpha()
    if before.lower() in ABBREVIATIONS or before.lower().rpartition("-")[2] in ABBREVIATIONS:
        return starts and not initial
    if initial and capital:
        return starts or (found is not None and len(found[0]) == 1)
    return not ((initial or _NUMBER.fullmatch(before)) and (text[following].islower() or text[following] in ";:,.!?"))


# Pieces that stand alone in the Treebank; between them, what follows an apostrophe.
_PIECE = re.compile(r"--+|\.\.+|[\s;@#$%&?!()\[\]{}<>\"“”«»„`‘’*]+|[:,](?!\d)")
_ENDING = re.compile(r"(?i)(?<=[^'\s])(?:'s|'m|'d|'ll|'re|'ve|n't|')$")
_PARTED = {"cannot": 2, "gimme": 2, "gonna": 2, "gotta": 2, "lemme": 2, "wanna": 2, "'tis": 2, "'twas": 2}


def capital_words(text: str) -> int:
    """How many of the words are in capitals, as str.isupper has it."""
    return sum(map(_capitals, filter(None, _PIECE.split(text))))


def _capitals(word: str) -> int:
    if ending := _ENDING.search(word):
        return ending[0].isupper() + _capitals(word[: ending.start()])
    return _PARTED.get(word.lower(), 1) if word.isupper() else 0
