"""IFEval's 25 instructions as lm-eval checks them, held against ours on made answers, strict and loose.

lm-eval's side is what is installed, whole: its checkers, langdetect and NLTK. Two things are settled so that the same
question has one answer: langdetect draws from a fixed seed, and NLTK's Punkt, which lm-eval would download a trained
model for, is given the abbreviations and sentence starters that ours has in the model's place.
"""

from __future__ import annotations

import json
import logging
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qualgate.scoring.ifeval import INSTRUCTIONS, faults, score_ifeval
from qualgate.scoring.ifeval.words import ABBREVIATIONS, LOWERED, STARTERS
from tests.verification.references.agreement import PIECES, WORDS, NoReference, Tally, made

FORMS = ("My answer is yes.", "My answer is No.", "* a\n", "- b\n", "\n* c", "\t*x", "*\n", "** c **\n", "*hi*",
         "**bold**", "* *", "<<T>>", "<<", ">>", "<< >>", "[x]", "[", "]", "***", "******", "\n***\n", "P.S. bye",
         "p. p. s", "P.P.S", "Section 1", "SECTION 2 ", "Section\t3", '{"a": 1}', "NaN", "[1, 2]", "```json\n", "```",
         '"', "Any other?")  # fmt: skip
SENTENCES = ("The cat sat.", "Is there more?", "Go!", "Wait... What", "J. Smith came.", "At 5 p.m. He left.", "No. 3",
             "1. First", "2. second", "Dr. X. is in.", "in the U.S. The end", "vitamin C. It", "etc. and",
             '"Go." Then', "(A.) B", "?!", "CAN'T STOP", "CANNOT", "I'M HERE", "NASA's", "A-B", "A/B", "10PM", "'TIS",
             "DON'T", "YOU'RE", "USA.", "O'CLOCK", "--", "X--Y", "`Q`", "Y'ALL", "'N'", "IT'S'", "EU: X,Y")  # fmt: skip
LANGUAGES = ("This is an ordinary sentence about the weather in London.", "Das ist ein ganz gewöhnlicher Satz.",
             "Ceci est une phrase tout à fait ordinaire.", "Это обычное предложение о погоде.",
             "这是一个关于天气的句子。", "これは天気についての文です。", "यह मौसम के बारे में है।",
             "ALL OF THIS IS WRITTEN IN CAPITALS", "all of this is small", "123 456")  # fmt: skip
KINDS = (FORMS, FORMS, SENTENCES, SENTENCES, LANGUAGES, *PIECES)
GIVEN: dict[str, tuple[Any, ...]] = {
    "count": (1, 1, 2, 2, 3, 5, 9),
    "relation": ("less than", "at least"),
    "letter": ("a", "T", "n"),
    "texts": (["cat"], ["so", "c.t"], ["Cat", "dog"], ["the", "a"], ["paris "], ["U.S."], ["a+"], ["(a)", "18"]),
    "text": ("cat", "so", "P.S.", "P.P.S", "Section", "SECTION", "The cat", "en", "de", "zh-cn", "a", "is", " the ",
    "18",
             "Any other?", "yes."),
}  # fmt: skip
LANGUAGE = ("en", "de", "fr", "ru", "ja", "hi")  # zh: langdetect never says it; see LANGUAGES in lm-eval for the names


@contextmanager
def checkers() -> Iterator[Any]:
    """lm-eval's `process_results` for IFEval. NoReference where a package that it needs is missing."""
    try:
        import langdetect
        import nltk
    except ImportError as error:
        raise NoReference(f"lm-eval's IFEval needs {error.name}") from None
    seed, folders, silent = langdetect.DetectorFactory.seed, list(nltk.data.path), logging.root.manager.disable
    with tempfile.TemporaryDirectory() as folder:
        _write_punkt(Path(folder) / "tokenizers" / "punkt_tab" / "english")
        nltk.data.path.insert(0, folder)
        langdetect.DetectorFactory.seed = 0
        logging.disable(logging.ERROR)  # they log every answer whose language cannot be told
        try:
            from lm_eval.tasks.ifeval import instructions_util, utils

            instructions_util._get_sentence_tokenizer.cache_clear()
            yield utils.process_results
            instructions_util._get_sentence_tokenizer.cache_clear()
        except ImportError as error:
            raise NoReference(f"lm-eval's IFEval cannot be imported: {error}") from None
        finally:
            langdetect.DetectorFactory.seed, nltk.data.path[:] = seed, folders
            logging.disable(silent)


def _write_punkt(folder: Path) -> None:
    """Our lists as a model: starters were seen in lower case, other words in both cases, and nothing else ever."""
    from nltk.tokenize import punkt

    small, large = punkt._ORTHO_MID_LC, punkt._ORTHO_MID_UC
    seen = {word: small if word in STARTERS else small | large for word in LOWERED}
    folder.mkdir(parents=True)
    for name, lines in (
        ("abbrev_types.txt", ABBREVIATIONS), ("sent_starters.txt", STARTERS), ("collocations.tab", ()),
        ("ortho_context.tab", (f"{word}\t{flags}" for word, flags in seen.items())),
    ):  # fmt: skip
        (folder / name).write_text("\n".join(sorted(lines)), encoding="utf-8")


def question(draw: random.Random, name: str) -> dict[str, Any]:
    """A row as IFEval publishes them, asking for this one instruction."""
    given = {
        argument: draw.choice(LANGUAGE if argument == "language" else GIVEN[kind])
        for argument, kind in INSTRUCTIONS[name].needs.items()
    }
    return {"key": 0, "prompt": "", "instruction_id_list": [name], "kwargs": [given]}


def differential(count: int, seed: int) -> Tally:
    """`count` made answers, each to an instruction of the 25 in turn. NoReference."""
    tally, draw = Tally(), random.Random(seed)
    with checkers() as theirs:
        for number in range(count):
            name = list(INSTRUCTIONS)[number % len(INSTRUCTIONS)]
            while any(faults(asked := question(draw, name))):
                pass
            compare(tally, theirs, asked, answer(draw, asked["kwargs"][0]))
    return tally


def answer(draw: random.Random, given: dict[str, Any]) -> str:
    """A made answer that often holds what the instruction asks for, or is all of one form."""
    wanted = [value for value in given.values() if isinstance(value, str)] + [*given.get("keywords", [])]
    kinds = draw.choice((KINDS, KINDS, (FORMS,), (SENTENCES,), (LANGUAGES,), (FORMS, WORDS, wanted or FORMS)))
    text = made(draw, kinds)
    for _ in range(draw.choice((0, 0, 1, 2))):
        text = draw.choice(_CHANGES)(text, draw.choice(wanted or [""]))
    return text


_CHANGES: tuple[Callable[[str, str], str], ...] = (
    lambda text, wanted: f'"{text}"', lambda text, wanted: text + wanted, lambda text, wanted: wanted + text,
    lambda text, wanted: f"{text}\n\n{wanted}", lambda text, wanted: f"Sure:\n{text}", lambda text,
    wanted: text + "\nBye", lambda text, wanted: text.upper(), lambda text, wanted: text.lower(), lambda text,
    wanted: f"{wanted} 1 {text} {wanted} 2", lambda text, wanted: f"*{text}*", lambda text,
    wanted: f"{text}\n***\n{text}", lambda text, wanted: f"{text}******{wanted}",
)  # fmt: skip


def compare(tally: Tally, theirs: Any, asked: dict[str, Any], text: str) -> None:
    (name,) = asked["instruction_id_list"]
    scores = score_ifeval(asked, text)
    try:
        expected = theirs(asked, [text])
    except Exception:  # theirs, so anything
        expected = None
    for way in ("strict", "loose"):
        followed = expected and expected[f"inst_level_{way}_acc"][0]
        said = scores[f"ifeval.inst_{way}"].extracted
        tally.take(f"{name}: {way}", followed, said and json.loads(said)[0], asked["kwargs"], text)
