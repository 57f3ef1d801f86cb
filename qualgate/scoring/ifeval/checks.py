"""The 25 verifiable instructions of IFEval (Zhou et al. 2023), as lm-evaluation-harness 0.4.13 checks them.

Each check takes a text and the instruction's arguments under their published names. Surprising rules of the original
are kept:

- keywords are regular expressions, found inside words; forbidden words at word borders; so is a `section_spliter`
- a highlight in two asterisks counts twice where both forms match it; an empty one between asterisks does not
- a bullet needs one asterisk or a dash; in `*` at a line's end the next line is part of it
- paragraphs part at `***` in one instruction and at blank lines in another
- `P.P.S` and `P.S.` allow a space between their letters; any other postscript is a regular expression
- JSON is what Python's reader takes, so NaN and duplicate keys are in, a number of over 4,300 digits is not
- a mark belongs to its word (`में` is one), `²` and `½` to none, as NLTK has it since 3.10; before, the other way round
- a text without a letter to tell its language by is in every language
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qualgate.scoring import regexes
from qualgate.scoring.ifeval.language import language
from qualgate.scoring.ifeval.words import capital_words, sentences, words


@dataclass(frozen=True, slots=True)
class Instruction:
    """One of the 25: its check, given the text and the arguments by their names, and what those arguments must be."""

    check: Callable[..., bool]
    needs: Mapping[str, str]  # argument → what it is: count, relation, text, texts, letter

    def fault(self, arguments: Mapping[str, Any]) -> str | None:
        """Return what is wrong with the arguments. One that lm-eval would draw at random counts as missing."""
        if extra := [name for name in arguments if name not in self.needs]:
            return f"it takes no {extra[0]!r}"
        for name, kind in self.needs.items():
            value = arguments.get(name)
            if not _KINDS[kind](value):
                return f"{name} is {value!r:.60}, expected {_EXPECTED[kind]}"
        if "nth_paragraph" in arguments and arguments["nth_paragraph"] > arguments["num_paragraphs"]:
            return "nth_paragraph is beyond num_paragraphs"
        return None


_KINDS: dict[str, Callable[[Any], bool]] = {
    "count": lambda value: type(value) is int and value > 0,
    "relation": lambda value: value in ("less than", "at least"),
    "text": lambda value: isinstance(value, str) and bool(value),
    "texts": lambda value: isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value),
    # In published rows "#" and "!" as well, which lm-eval replaces by a letter drawn by lot; here they are counted.
    "letter": lambda value: isinstance(value, str) and len(value) == 1 and value.isprintable() and not value.isspace(),
}
_EXPECTED = {"count": "a whole number above 0", "relation": "'less than' or 'at least'", "text": "text",
             "texts": "a list of texts", "letter": "one character that can be seen"}  # fmt: skip


INSTRUCTIONS: dict[str, Instruction] = {}


def _instruction(name: str, **needs: str) -> Callable[[Callable[..., bool]], Callable[..., bool]]:
    """List the decorated check under `name`. needs: its arguments, see `Instruction`."""

    def listed(check: Callable[..., bool]) -> Callable[..., bool]:
        INSTRUCTIONS[name] = Instruction(check, needs)
        return check

    return listed


def _compares(count: int, relation: str, wanted: int) -> bool:
    return count < wanted if relation == "less than" else count >= wanted


@_instruction("keywords:existence", keywords="texts")
def _keywords_existence(text: str, keywords: list[str]) -> bool:
    return all(regexes.count(keyword, text, ignore_case=True) for keyword in sorted(keywords))


@_instruction("keywords:frequency", keyword="text", frequency="count", relation="relation")
def _keywords_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _compares(regexes.count(keyword.strip(), text, ignore_case=True), relation, frequency)


@_instruction("keywords:forbidden_words", forbidden_words="texts")
def _forbidden_words(text: str, forbidden_words: list[str]) -> bool:
    return not any(regexes.count(rf"\b{word}\b", text, ignore_case=True) for word in sorted(set(forbidden_words)))


@_instruction("keywords:letter_frequency", letter="letter", let_frequency="count", let_relation="relation")
def _letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compares(text.lower().count(letter.lower()), let_relation, let_frequency)


@_instruction("language:response_language", language="text")
def _response_language(text: str, language: str) -> bool:
    return _in(text, language)


def _in(text: str, wanted: str) -> bool:
    return language(text) in (wanted, None)


@_instruction("length_constraints:number_sentences", num_sentences="count", relation="relation")
def _number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return _compares(sum(1 for _ in sentences(text)), relation, num_sentences)


@_instruction("length_constraints:number_paragraphs", num_paragraphs="count")
def _number_paragraphs(text: str, num_paragraphs: int) -> bool:
    paragraphs = re.split(r"\s?\*\*\*\s?", text)
    filled = [bool(paragraph.strip()) for paragraph in paragraphs]
    return all(filled[1:-1]) and sum(filled) == num_paragraphs


@_instruction("length_constraints:number_words", num_words="count", relation="relation")
def _number_words(text: str, num_words: int, relation: str) -> bool:
    return _compares(words(text), relation, num_words)


@_instruction(
    "length_constraints:nth_paragraph_first_word", num_paragraphs="count", nth_paragraph="count", first_word="text"
)
def _nth_paragraph_first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Check a paragraph's first word and the number of paragraphs, as the reference implementation does."""
    paragraphs = text.split("\n\n")
    filled = sum(bool(paragraph.strip()) for paragraph in paragraphs)
    # The n-th of all is looked at, though only those with text in them are counted.
    if nth_paragraph > filled or not (words := paragraphs[nth_paragraph - 1].split()):
        return False
    word = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0]
    return filled == num_paragraphs and "".join(map(str.lower, word)) == first_word.lower()


@_instruction("detectable_content:number_placeholders", num_placeholders="count")
def _number_placeholders(text: str, num_placeholders: int) -> bool:
    return sum(map(_brackets, text.split("\n"))) >= num_placeholders


def _brackets(line: str) -> int:
    """Non-overlapping `[…]` in a line; what a lazy regular expression would find in quadratic time."""
    count, place = 0, 0
    while (opens := line.find("[", place)) >= 0 and (closes := line.find("]", opens + 1)) >= 0:
        count, place = count + 1, closes + 1
    return count


@_instruction("detectable_content:postscript", postscript_marker="text")
def _postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    known = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return bool(regexes.count(known.get(marker, marker.lower()), text.lower()))


_INK = re.compile(r"\S")


def _bullets(text: str, mark: str) -> int:
    r"""Count the matches of `^\s*\*[^\*].*$` (mark `*`) or `^\s*-.*$` (mark `-`), multiline.

    `\s` spans lines, so that a search by the pattern itself would be quadratic.
    """
    count, position = 0, 0
    while ink := _INK.search(text, position):
        start = ink.start()
        end = start + 1
        if text[start] == mark:
            if mark == "-":
                count += 1
            elif text[end : end + 1] not in ("*", ""):
                count, end = count + 1, end + 1
                if text[start + 1] == "\n" and text[end : end + 1] == "\n":
                    position = end  # the match ended where a line starts
                    continue
        if (newline := text.find("\n", end)) < 0:
            break
        position = newline + 1
    return count


@_instruction("detectable_format:number_bullet_lists", num_bullets="count")
def _number_bullet_lists(text: str, num_bullets: int) -> bool:
    return _bullets(text, "*") + _bullets(text, "-") == num_bullets


@_instruction("detectable_format:constrained_response")
def _constrained_response(text: str) -> bool:
    return any(f"My answer is {word}." in text for word in ("yes", "no", "maybe"))


@_instruction("detectable_format:number_highlighted_sections", num_highlights="count")
def _number_highlighted_sections(text: str, num_highlights: int) -> bool:
    single = [highlight for highlight in re.findall(r"\*[^\n*]*\*", text) if highlight.strip("*").strip()]
    double = [highlight for highlight in re.findall(r"\*\*[^\n*]*\*\*", text) if highlight[2:-2].strip()]
    return len(single) + len(double) >= num_highlights


@_instruction("detectable_format:multiple_sections", section_spliter="text", num_sections="count")
def _multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    return regexes.count(rf"\s?{section_spliter.strip()}\s?\d+\s?", text) >= num_sections


@_instruction("detectable_format:json_format")
def _json_format(text: str) -> bool:
    """Return whether the text is JSON, also within a code fence."""
    inner = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        inner = inner.removeprefix(fence)
    try:
        json.loads(inner.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


@_instruction("detectable_format:title")
def _title(text: str) -> bool:
    for line in text.split("\n"):
        opens, closes = line.find("<<"), line.rfind(">>")
        if opens >= 0 and closes >= opens + 3 and line[opens : closes + 2].lstrip("<").rstrip(">").strip():
            return True
    return False


@_instruction("combination:two_responses")
def _two_responses(text: str) -> bool:
    parts = [part.strip() for part in text.split("******")]
    filled = [part for part in parts if part]
    return all(parts[1:-1]) and len(filled) == 2 and filled[0] != filled[1]


@_instruction("combination:repeat_prompt", prompt_to_repeat="text")
def _repeat_prompt(text: str, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


@_instruction("startend:end_checker", end_phrase="text")
def _end_checker(text: str, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


@_instruction("startend:quotation")
def _quotation(text: str) -> bool:
    inner = text.strip()
    return len(inner) > 1 and inner[0] == inner[-1] == '"'


@_instruction("change_case:capital_word_frequency", capital_frequency="count", capital_relation="relation")
def _capital_word_frequency(text: str, capital_frequency: int, capital_relation: str) -> bool:
    return _compares(capital_words(text), capital_relation, capital_frequency)


@_instruction("change_case:english_capital")
def _english_capital(text: str) -> bool:
    return text.isupper() and _in(text, "en")


@_instruction("change_case:english_lowercase")
def _english_lowercase(text: str) -> bool:
    return text.islower() and _in(text, "en")


@_instruction("punctuation:no_comma")
def _no_comma(text: str) -> bool:
    return "," not in text
