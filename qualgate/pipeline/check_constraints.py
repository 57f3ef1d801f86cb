"""Check before a run that a model's vocabulary can begin an answer under each case's constraint."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.engine.constraint import GrammarMask, Vocabulary
from qualgate.engine.prompts import Renderer
from qualgate.errors import UsageError
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import Prompt


def check_constraints(folder: ModelFolder, renderer: Renderer, prompts: Sequence[Prompt]) -> None:
    """Raise UsageError naming the cases whose constraint admits no first token of this model: no token has its
    characters, or nothing fulfils it."""
    grammars: dict[str, list[str]] = {}
    for prompt in prompts:
        if prompt.constraint:
            grammars.setdefault(prompt.constraint, []).append(prompt.key.question)
    if not grammars:
        return
    words = Vocabulary(renderer.tokenizer, folder.stop_ids)
    mute = [case for grammar, cases in grammars.items() if not _begins(words, grammar, folder) for case in cases]
    if mute:
        remainder = f" and {len(mute) - 5} more" if len(mute) > 5 else ""
        raise UsageError(
            f"{folder.path}: the constraint of {', '.join(mute[:5])}{remainder} admits no token of this model to begin "
            "with. Either nothing fulfils it, or its characters are in no token: change it, or take the case out."
        )


def _begins(words: Vocabulary, grammar: str, folder: ModelFolder) -> bool:
    [row] = GrammarMask(words, grammar).admitted([], [])
    return any(row[: folder.vocabulary])
