"""Check an answer's language, by the scripts of its letters, then by the languages of its parts.

Languages are identified by py3langid's model, which gives the same language on every machine, from 40 letters on, with
vowel signs; a letter of Chinese, Japanese, Korean or Thai counts three. An answer is split into parts of that size at
ends of sentences, without code, addresses, tags and formulas.

- By script: at most a fifth of the letters, or fewer than 5, have scripts that occur neither in the case nor in its
  `language`; and no word mixes a script of the case with a foreign one (weather很好).
- By language: at most a fifth of the letters are in parts that are surely of another language than the case's
  `language`; without that key, than those of its last question and of its `answer`.

A part is surely of another language if the model gives that at least `SURE` and the right ones at most `UNLIKELY`
together. Without a `language` in the case, short texts, code and JSON are judged by script; with one they are null:
`short`, `code`, `unclear`, or `no_language` for an unknown code.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from qualgate.errors import close_names
from qualgate.scoring.outcome import actual

SCRIPT_READ = 32_768  # characters, from each end
LANGUAGE_READ = 4_096
FOREIGN_SHARE, FOREIGN_LETTERS, GLUED_LETTERS = 0.2, 5, 2
TELLING = 40  # letters needed to identify a language
SURE, UNLIKELY = 0.8, 0.1  # shares that py3langid gives; see the row `languages` of benchmark `scoring`
BOOKKEEPING = ("id", "task", "tags", "cluster", "category", "max_new_tokens", "refuse", "language")
# An answer to a case with one of these is read by a program.
FOR_PROGRAMS = ("schema", "tools", "expected_calls", "constraint", "entry_point", "fn_name", "tests", "test_list")
# Languages too similar to tell apart: a text in one counts for the others as well.
KIN = (
    {"id", "ms"}, {"hr", "bs", "sr"}, {"no", "nn", "da"}, {"zh", "yue", "wuu"}, {"ar", "arz", "ary"},
)  # fmt: skip
# Scripts of each language, by the names of `scripts`; all other languages are Latin.
WRITTEN_IN = {
    "am": "ethiopic", "ar": "arabic", "ary": "arabic", "arz": "arabic", "as": "bengali", "az": "latin cyrillic arabic",
    "ba": "cyrillic", "be": "cyrillic", "bg": "cyrillic", "bn": "bengali", "bs": "latin cyrillic",
    "crh": "latin cyrillic", "dz": "tibetan", "el": "greek", "fa": "arabic", "fuv": "latin adlam",
    "gom": "devanagari latin kannada", "grc": "greek", "gu": "gujarati", "ha": "latin arabic", "hbo": "hebrew",
    "he": "hebrew", "hi": "devanagari", "hy": "armenian", "ja": "hiragana katakana cjk",
    "jv": "latin javanese", "ka": "georgian", "kab": "latin tifinagh", "kk": "cyrillic latin arabic", "km": "khmer",
    "kn": "kannada", "ko": "hangul", "ku": "latin arabic", "ky": "cyrillic arabic", "lo": "lao", "mk": "cyrillic",
    "ml": "malayalam", "mn": "cyrillic mongolian", "mr": "devanagari", "ms": "latin arabic", "my": "myanmar",
    "ne": "devanagari", "or": "oriya", "pa": "gurmukhi arabic", "ps": "arabic", "ru": "cyrillic", "sa": "devanagari",
    "sdh": "arabic", "si": "sinhala", "sr": "cyrillic latin", "ta": "tamil", "te": "telugu", "tg": "cyrillic arabic",
    "th": "thai", "tk": "latin cyrillic", "tt": "cyrillic latin", "ug": "arabic", "uk": "cyrillic", "ur": "arabic",
    "uz": "latin cyrillic", "uzs": "arabic", "wuu": "cjk", "yue": "cjk", "zh": "cjk",
}  # fmt: skip
SIGNS, SIGNS_OF_CODE = "{}[]()=<>;\\_", 0.05  # a letter; prose with names in brackets has 0.03, programs 0.05 to 0.4
NO_LANGUAGE = "zxx"  # py3langid's for numbers, tables, code

_CODE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|\$\$.{0,200}?\$\$|\\\(.{0,200}?\\\)|\\\[.{0,200}?\\\]|\$[^$\n]{0,200}\$"
    r"|https?://\S+|<[^<>]{0,200}>|\\[A-Za-z]+",
    re.DOTALL,
)
_END = re.compile(r"(?<=[.!?。！？।؟\n])|(?<=[\u0e00-\u0e7f]) ")  # Thai has a blank where a phrase ends
_WORD = re.compile(r"[^\W\d_]+")
_DENSE = {"cjk", "hiragana", "katakana", "hangul", "thai"}  # whose letters say as much as three of another's
_OF_ANY = {"combining", "variation", "enclosing"}  # marks that stand on letters of every script
_IN_FORMULAS = {"greek", "modifier", "ideographic"}  # letters that stand beside those of any script


def language_fault(body: Mapping[str, Any], text: str) -> tuple[float | None, str, str] | None:
    """Return value (0 or null), error type and reason if the answer is in the wrong language, else None."""
    known = _written_with(scripts(_texts(body)))
    if (is_named := "language" in body) and (unknown := next(faults(body), "")):
        return None, "no_language", unknown
    target = frozenset([body["language"]]) if is_named else _asked_in(body)
    prose = _CODE.sub(" ", _read(text))
    for_programs = _for_programs(body) or _is_code(prose)
    code = for_programs or len(prose.split()) < len(_read(text).split())
    parts = [] if not target or for_programs else _parts(prose)
    part_shares = [(part, _share(part, target), _letters(part)) for part in parts]
    if is_named:  # its scripts, whatever the question's are
        known |= _written_with(WRITTEN_IN.get(body["language"], "latin").split())
    mixable = known | (
        {"latin"} if is_named and known & _DENSE else set()
    )  # which goes on within their words, as in iPhone을
    if is_named:
        known |= _written_with(script for part, share, _ in part_shares if share > UNLIKELY for script in scripts(part))
    total = sum(letters for _, _, letters in part_shares)
    foreign = Counter[str]()
    for part, share, letters in part_shares:
        if share <= UNLIKELY and (other_language := surely(part)):
            foreign[other_language] += letters
    if total and foreign.total() > FOREIGN_SHARE * total and foreign.total() >= TELLING:
        names = ", ".join(language for language, _ in foreign.most_common())
        return 0.0, "language", f"{foreign.total() / total:.0%} of it is in {names}, not in {', '.join(sorted(target))}"
    if strange := foreign_scripts(prose, known):
        return 0.0, "language", f"letters that are not of the question's script: {', '.join(strange)}"
    if glued := glued_word(prose, mixable):
        return 0.0, "mixed", f"a word of several scripts: {glued[0]!r} ({', '.join(glued[1])})"
    if not is_named or max((own for _, own, _ in part_shares), default=0) > UNLIKELY:
        return None
    if total:
        return None, "unclear", "its language cannot be told"
    if code:
        return None, "code", "it is code, which is of no language"
    return None, "short", f"fewer than {TELLING} letters: too short to tell its language"


def faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a case's `language`."""
    if not isinstance(code := body.get("language", "en"), str) or code not in languages():
        near = close_names(code, sorted(languages())) if isinstance(code, str) else []
        meant = f"; did you mean {near[0]}?" if near else ""
        yield f"`language` must be the code of one that is told, such as en, es, zh; {actual(body, 'language')}{meant}"


@cache
def _model() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def languages() -> frozenset[str]:
    """Return the codes of the languages that the model can identify."""
    return frozenset(_model().labels) - {NO_LANGUAGE}


@lru_cache(maxsize=4096)
def _shares(text: str) -> dict[str, float]:
    return dict(_model().rank(text))


def _share(text: str, expected: frozenset[str]) -> float:
    """Return the probability of the `expected` languages and of those that are easily mistaken for them."""
    kin = expected.union(*(family for family in KIN if family & expected))
    return sum(share for language, share in _shares(text).items() if language in kin)


def surely(text: str) -> str:
    """Return the language of `text` if the model is sure of it (or of a close relative), else ""."""
    language = next(iter(_shares(text)))
    return language if language != NO_LANGUAGE and _share(text, frozenset([language])) >= SURE else ""


def _parts(text: str) -> list[str]:
    """Split prose into parts to identify one by one: sentences, joined until they hold `TELLING` letters."""
    read = text if len(text) <= 2 * LANGUAGE_READ else f"{text[:LANGUAGE_READ]}\n{text[-LANGUAGE_READ:]}"
    parts, sentences, letters = [], [], 0
    for sentence in _END.split(read):
        sentences.append(sentence)
        letters += _letters(sentence)
        if letters >= TELLING:
            parts.append("".join(sentences).strip())
            sentences, letters = [], 0
    if parts and (remainder := "".join(sentences).strip()):
        parts[-1] += f" {remainder}"
    return parts


def _is_code(text: str) -> bool:
    """Return whether the text is JSON, or has more of a program's punctuation than prose ever has."""
    signs = sum(map(text.count, SIGNS))
    return text.strip()[:1] + text.strip()[-1:] in ("{}", "[]") or signs > SIGNS_OF_CODE * _letters(text)


def _letters(text: str) -> int:
    return sum(count * _weight(script) for script, count in scripts(text).items())


def _weight(script: str) -> int:
    return 3 if script in _DENSE else 1


def _asked_in(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the languages of the last question and the reference; empty if unclear: then scripts alone decide."""
    if _for_programs(body):
        return frozenset()
    messages = body.get("messages")
    questions = [body.get("prompt")]
    if isinstance(messages, list):
        of_user = (message for message in messages if isinstance(message, dict) and message.get("role") == "user")
        questions = [message.get("content") for message in of_user]
    texts = [text for text in (*questions[-1:], body.get("answer")) if isinstance(text, str)]
    return _told("\n".join(texts))


@lru_cache(maxsize=1024)
def _told(text: str) -> frozenset[str]:
    codes = [surely(part) for part in _parts(_CODE.sub(" ", _read(text)))]
    return frozenset(codes) if all(codes) else frozenset()


def _for_programs(body: Mapping[str, Any]) -> bool:
    return any(key in body for key in FOR_PROGRAMS)


# --------------------------------------------------------------------------------------------------- scripts


def foreign_scripts(text: str, known: set[str]) -> tuple[str, ...]:
    """Scripts of `text` beyond those `known`, most used first; () while they are few (see above)."""
    if not known:  # a question in digits alone is of no language
        return ()
    letter_counts = scripts(text)
    foreign = Counter({script: count for script, count in letter_counts.items() if script not in known})
    letters = foreign.total()
    known_letters = sum(_weight(script) * letter_counts[script] for script in letter_counts.keys() & known)
    if letters < FOREIGN_LETTERS or letters <= FOREIGN_SHARE * (letters + known_letters):
        return ()
    return tuple(script for script, _ in foreign.most_common())


def glued_word(text: str, known: set[str]) -> tuple[str, tuple[str, ...]] | None:
    """Return the first word that mixes a known with an unknown script, and its scripts; None if too few letters do."""
    if not known or not set(scripts(text)) - known - _IN_FORMULAS:
        return None
    first, letters = None, 0
    plain = "".join(character for character in _read(text) if not unicodedata.category(character).startswith("M"))
    for word in _WORD.findall(plain):  # vowel signs would end one
        letter_counts = Counter(script for script in map(_script, word) if script and script not in _IN_FORMULAS)
        strange = letter_counts.keys() - known
        if strange and len(letter_counts) > len(strange):
            first = first or (word[:40], tuple(sorted(letter_counts)))
            letters += sum(letter_counts[script] for script in strange)
    return first if letters >= GLUED_LETTERS else None


def _written_with(scripts: Iterable[str]) -> set[str]:
    """Return these scripts and those that are written together with them (kana with kanji)."""
    extended = set(scripts)
    if extended & {"hiragana", "katakana"}:
        extended |= {"hiragana", "katakana", "cjk"}
    return extended | {"cjk"} if "hangul" in extended else extended


def _read(text: str) -> str:
    return text if len(text) <= 2 * SCRIPT_READ else text[:SCRIPT_READ] + text[-SCRIPT_READ:]


def scripts(text: str) -> Counter[str]:
    """Count the letters of each script, with its vowel signs and marks."""
    counts: Counter[str] = Counter()
    for character, count in Counter(_read(text)).items():
        if script := _script(character):
            counts[script] += count
    return counts


@lru_cache(maxsize=2**16)
def _script(character: str) -> str:
    """Return a letter's script, as `latin`, `cyrillic` or `cjk`, by its Unicode name; "" for what is no letter.

    A mark counts as no letter if it belongs to any script or to a dense one. A styled letter counts as the plain one.
    """
    plain = unicodedata.normalize("NFKC", character)[:1]
    if (kind := unicodedata.category(plain)[:1]) not in ("L", "M"):
        return ""
    script = re.split(r"[\s-]", unicodedata.name(plain, ""))[0].lower()
    return script if kind == "L" or script not in _DENSE | _OF_ANY else ""


def _texts(body: Mapping[str, Any]) -> str:
    """Return all texts of the case but bookkeeping: the question, and what its scorers need."""
    texts = []
    for key, value in body.items():
        if key == "messages" and isinstance(value, list):
            value = [message.get("content") for message in value if isinstance(message, dict)]
        if key not in BOOKKEEPING and value is not None:
            texts.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return "\n".join(texts)
