"""Words, sentences and capital words, counted as NLTK 3.10 counts them for IFEval, without NLTK and its trained data.

Sentences: Punkt (Kiss & Strunk 2006) as NLTK applies it, with lists of abbreviations and of words in place of the
trained model: common words, each classified as by NLTK's English model. So counts can differ from that model where one
of the two does not know a word after an abbreviation, dots or an initial. Surprising behaviour is kept:
`e.g.` and `etc.` end a sentence, `vitamin C.` does not, and in a numbered list each number does when a capital follows;
a line break alone ends none; of all points in a run of characters without white space, one that ends a sentence lets
the whole run end it.

Capital words: the Penn Treebank's rules for parting words, sentence by sentence (`CAN'T` is CA and N'T, `I'M` is I and
'M), of which only those that make more or fewer capital words are applied. Kept where it surprises: `IT'S'` parts into
IT and 'S before a space, but not before a line break.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterator
from itertools import pairwise, zip_longest

# Written without their final point, in lower case.
_ABBREVIATIONS = """
mr mrs ms messrs dr prof ph.d m.b.a jr sr st gen col maj lt adm sen rep reps inc ltd co corp cos bros vs v ft mg yr ave
jan feb aug sep sept oct nov dec tues wed fri a.m p.m u.s u.k u.n u.s.a u.s.s.r d.c l.a n.y n.j n.c s.c n.h n.m n.d
ala ariz calif colo conn fla ga ill kan ky mich minn nev okla ore pa tenn va vt wash wis c d e f g h k l m n p r s t w
"""
ABBREVIATIONS = frozenset(_ABBREVIATIONS.split())
# Capitalized after an abbreviation or dots, these start a sentence; another word may be part of a name.
_STARTERS = """
able above according almost along although always among anything ask available behind being beneath besides better
between beyond body both but car certainly conclusion consider despite different difficult does door early eight
either enough especially even example except eye fact finally friend furthermore girl given going guy he hence her
here hers him hour however i idea if imagine important in indeed inside instead into it lets likewise list looking lot
many meanwhile member mine minute moment moreover morning most mother myself neither nevertheless nonetheless nor note
nothing number onto otherwise ours overall person please plenty program question recent regards remember result right
same section seeing seven similar similarly simple simply since sincerely single so some someone soon step still such
taking teacher team ten thank thanks the them there therefore these they think this though through throughout thus tip
tips title tomorrow true truly try under unless upon us using very were when whenever wherever whether which while
whole whom within without yes yesterday yet
"""
STARTERS = frozenset(_STARTERS.split())
# Capitalized after an initial, these and single letters start one, too: in lower case they are words.
_OTHERS = """
about across actually after again against air all also an and another answer any are area around art as at back bad
based be because been before below best big black blue book business by can case certain change chapter child city
clear clearly come common community company could day did do due during each education end every everyone everything
face father few find first five for force four free from full game generally get give go goal good government great
green had half hand hard has have having head health help high his history home house how information introduction is
issue its job just keep key kind know large last later law less let letter level life like line little long look low
main make making man may maybe me might money month more much must my name near nearly never new next night nine no
nobody none not now off office often old on once one only open or other others our out outside over own parent part
party past people perhaps place plan point possible power president quite rather real really reason red report
research review room rule said say saying second see service several she short should side six small something song
special start stop story strong study summary sure system take tell that their then those three time to today too top
toward two until up use usually war was water way we week well what whatever where white who whose why will with woman
word work world would year you young
"""
LOWERED = STARTERS - {"i"} | frozenset(_OTHERS.split()) | frozenset("abcdefghjklmnopqrstuvwxyz")

# Python's \s but for the ASCII separators, which are no white space to the `regex` package, by which NLTK matches.
_BLANK, _INK = r"[^\S\x1c-\x1f]", r"[\S\x1c-\x1f]"
_NO_WORD = "[)\";}\\]*:@'({\\[‘’“”«»?!]"
_END = re.compile(rf"[.?!](?={_NO_WORD}|{_BLANK}+(?P<next>{_INK}+))")
_CLOSERS = re.compile(rf"[\"')\]}}‘’“”«»]+?(?:{_BLANK}+|(?=--)|$)", re.MULTILINE)
_TOKEN = re.compile(
    rf"""-{{2,}} | \.{{2,}} | {_INK}(?<![("`{{\[:;&\#*@)}}\]\-,]) (?: (?!--|\.\.|,(?:{_BLANK}|\Z|{_NO_WORD}|--|\.\.))
         {_INK}(?<!{_NO_WORD}) )* | {_INK}""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")
# The joiners, and letters in circles and squares.
_WORDLIKE = re.compile("[\u200c\u200d\u24b6-\u24e9\U0001f130-\U0001f149\U0001f150-\U0001f169\U0001f170-\U0001f189]")


def words(text: str) -> int:
    """Runs of word characters: letters, marks, decimal digits and letter-like numbers, connectors, joiners."""
    return len(text.translate({ord(character): "w" if _of_word(character) else " " for character in set(text)}).split())


def _of_word(character: str) -> bool:
    kind = unicodedata.category(character)
    return kind[0] in "LM" or kind in ("Nd", "Nl", "Pc") or _WORDLIKE.match(character) is not None


def sentences(text: str) -> Iterator[str]:
    """They part after white space, or at a mark that follows the end; closing marks belong to the sentence before."""
    slices, taken = list(_slices(text)), 0
    for (start, stop), following in zip_longest(slices, slices[1:]):
        start += taken
        closers = _CLOSERS.match(text, *following) if following else None
        taken = closers.end() - closers.start() if closers else 0
        if closers:
            yield text[start : closers.start() + len(closers[0].rstrip())]
        elif start < stop:
            yield text[start:stop]


def _slices(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end, run in _possible_ends(text):
        if _ends(run):
            yield start, end.end()
            start = end.start("next") if end["next"] else end.end()
    yield start, len(text.rstrip())


def _possible_ends(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the last place in each run of non-blank characters at which a sentence may end, and the run.

    With the run comes what follows it: a mark, or white space and the next run.
    """
    last, run = None, 0
    for end in _END.finditer(text):
        before = last.start() if last else 0
        space = max(text.rfind(blank, before + 1, end.start()) for blank in string.whitespace)
        begins = run if space < 0 else space + 1
        if last and before <= begins:
            yield last, text[run : last.end("next") if last["next"] else last.end() + 1]
        last, run = end, begins
    if last:
        yield last, text[run : last.end("next") if last["next"] else last.end() + 1]


def _ends(run: str) -> bool:
    """Whether a token before the last one ends a sentence."""
    tokens = [token for line in run.split("\n") if line.strip() for token in _TOKEN.findall(line)]
    return any(_is_end(token, following) for token, following in pairwise(tokens))


def _is_end(token: str, following: str) -> bool:
    """Return whether `token` ends a sentence, by the rules of NLTK's Punkt. following: the token after it."""
    if not token.endswith("."):
        return token in ("?", "!")
    capital, next_word = following[0].isupper(), following.lower()
    if following.endswith(".") and len(following) > 1 and not _abbreviates(following):
        next_word = next_word[:-1]
    if initial := len(token) == 2 and _LETTER.match(token) is not None:
        if _abbreviates(token) or (capital and next_word not in LOWERED):
            return False
    elif _abbreviates(token) or (token.endswith("..") and not token.strip(".")):
        return capital and next_word in STARTERS
    if initial or _NUMBER.fullmatch(token):
        return not (following[0].islower() or following in tuple(";:,.!?"))
    return not token.endswith("..")


def _abbreviates(token: str) -> bool:
    word = token[:-1].lower()
    return word in ABBREVIATIONS or word.rpartition("-")[2] in ABBREVIATIONS


_LETTER = re.compile(r"[^\W\d]")
# In the order in which they part words. An apostrophe's fate depends on what stood beside it when its turn came.
_OPENING = re.compile(r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)")
_ALONE = re.compile(r"\.{2,}|[:,](?!\d)|[;@#$%&?!«“‘„`\u2012-\u2015]")
_BEFORE_SPACE = re.compile(r"(?<!')' ")
_ALONE_LATER = re.compile(rf"--|''|[()\[\]{{}}<>*\"»”’]|{_BLANK}")
_ENDINGS = (re.compile(r"(?<=[^'])(?:'[sSmMdD]|')\Z"), re.compile(r"(?<=[^'])(?:'(?:ll|LL|re|RE|ve|VE)|n't|N'T)\Z"))
_CONTRACTED = re.compile(r"(?i)\b(?:(?:can()not|d()'ye|gim()me|gon()na|got()ta|lem()me|more()'n)\b|wan()na\Z)")
_TIS = re.compile(r"(?i) ('t)(is|was)\b")  # after a contraction alone; elsewhere its apostrophe stands alone before


def capital_words(text: str) -> int:
    """How many of the words are in capitals, as str.isupper has it."""
    return sum(part.isupper() for sentence in sentences(text) for word in _parted(sentence) for part in _parts(word))


def _parted(sentence: str) -> list[str]:
    """The words between what stands alone: white space, symbols, and the sentence's final point."""
    body = sentence.rstrip().rstrip("])}>\"'»”’ ")
    if body.endswith(".") and not body.endswith("..") and body != ".":
        sentence = f"{body[:-1]} {sentence[len(body) :]}"
    sentence = _BEFORE_SPACE.sub(" ' ", _ALONE.sub(" ", _OPENING.sub("' ", sentence)))
    return _ALONE_LATER.sub(" ", sentence).split(" ")


def _parts(word: str) -> Iterator[str]:
    for ending in _ENDINGS:
        if match := ending.search(word):
            yield match[0]
            word = word[: match.start()]
    yield from _TIS.sub(r" \1 \2", _CONTRACTED.sub(lambda match: f" {_cut(match)} ", word)).split()


def _cut(match: re.Match[str]) -> str:
    place = match.end(match.lastindex or 0) - match.start()
    return f"{match[0][:place]} {match[0][place:]}"
