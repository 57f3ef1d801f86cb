"""lm-eval's `hf` model and ours, asked the same: texts to generate, and choices to weigh."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast

from qualgate.errors.extras import installed_version, needs
from qualgate.records import Prompt
from tests.benchmarks.questions import KINDS

UNTIL = ("\n\n", "<|im_end|>")  # as a task has it: a text, and the end of a turn
SHOTS = 3  # solved cases before each question of choices, the same for a whole set
CHOICES = 4
LONGEST = 80  # characters of a choice

Requests = dict[str, list[Any]]  # kind → lm-eval's instances


def missing() -> str:
    """Why nothing can be asked through lm-eval; "" where it can."""
    return "" if installed_version("harness") else needs("this benchmark", "harness")


def contexts(tokenizer: Any, prompts: Mapping[str, Sequence[Prompt]]) -> dict[str, list[Prompt]]:
    """The prompts as lm-eval's tasks give them, as text, each set with one limit: what their text says again.

    Tokens that a text does not give back are other prompts, which are left out.
    """
    limits: dict[str, int] = {}
    for one in (one for mine in prompts.values() for one in mine):
        limits[one.key.evalset] = max(limits.get(one.key.evalset, 0), one.max_new_tokens)
    return {
        kind: [
            replace(one, max_new_tokens=limits[one.key.evalset], until=UNTIL)
            for one in mine
            if tuple(tokenizer.encode(text_of(tokenizer, one), add_special_tokens=False)) == one.token_ids
        ]
        for kind, mine in prompts.items()
    }


def text_of(tokenizer: Any, prompt: Prompt) -> str:
    """The prompt as text."""
    return tokenizer.decode(prompt.token_ids, skip_special_tokens=False)


def generations(tokenizer: Any, prompts: Mapping[str, Sequence[Prompt]]) -> Requests:
    """An instance for each prompt."""
    return {
        kind: [
            _instance(
                "generate_until",
                (
                    text_of(tokenizer, one),
                    {"until": list(UNTIL), "max_gen_toks": one.max_new_tokens, "do_sample": False},
                ),
                at,
            )
            for at, one in enumerate(mine)
        ]
        for kind, mine in prompts.items()
    }


def choices(per_set: int) -> Requests:
    """Questions of each shipped set: solved ones before it, and its answer among those of the next questions.

    Each question is as many instances as it has choices, one after the other.
    """
    return {kind: [one for name in sets for one in _choices_of(name, per_set)] for kind, sets in KINDS.items()}


def _choices_of(name: str, per_set: int) -> list[Any]:
    lines = (files("qualgate_evalsets") / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines[: SHOTS + per_set + CHOICES - 1]]
    solved = "".join(f"{_question(case)}{case['answer'][:LONGEST]}<|im_end|>\n" for case in cases[:SHOTS])
    found = []
    for at in range(SHOTS, SHOTS + per_set):
        context = solved + _question(cases[at])
        offered = dict.fromkeys(case["answer"][:LONGEST] for case in cases[at : at + CHOICES])
        spare = (f"{word}." for word in ("none", "all", "some"))
        texts = [*offered, *spare][:CHOICES]
        found += [_instance("loglikelihood", (context, text), at) for text in texts]
    return found


def _question(case: Mapping[str, Any]) -> str:
    return f"<|im_start|>user\n{case['messages'][-1]['content']}<|im_end|>\n<|im_start|>assistant\n"


def _instance(kind: Literal["generate_until", "loglikelihood"], arguments: tuple[Any, ...], index: int) -> Any:
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=index)


def chosen(weighed: Sequence[tuple[float, bool]]) -> list[int]:
    """Of each question the likeliest choice."""
    questions = [weighed[at : at + CHOICES] for at in range(0, len(weighed), CHOICES)]
    return [max(range(CHOICES), key=lambda at, of=of: of[at][0]) for of in questions]


class Hf:
    """lm-eval's own model class over a model of transformers, at a batch size of each call."""

    def __init__(self, model: Any, folder: Path) -> None:
        from lm_eval.models.huggingface import HFLM
        from transformers import AutoTokenizer

        tokenizer, kind = AutoTokenizer.from_pretrained(folder), cast("Any", HFLM)
        self._lm: Any = kind(pretrained=model, tokenizer=tokenizer, batch_size=1, backend="causal")

    def texts(self, requests: Sequence[Any], size: int) -> list[str]:
        """Of `generations`."""
        self._lm.batch_size_per_gpu = size
        return self._lm.generate_until(list(requests), disable_tqdm=True)

    def weighed(self, requests: Sequence[Any], size: int) -> list[tuple[float, bool]]:
        """Of `choices`."""
        self._lm.batch_size_per_gpu = size
        return self._lm.loglikelihood(list(requests), disable_tqdm=True)


def plug(recipe: object, cache: Path) -> Any:
    """Our model behind lm-eval's loop, of the reference model in bfloat16. recipe: as in a gate file, or None."""
    from qualgate.harness.model import QualgateLM

    return cast("Any", QualgateLM)(quantize=recipe, dtype="bfloat16", cache_dir=str(cache), device="cpu")
