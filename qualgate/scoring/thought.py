"""Score a thought: whether it ended, stayed out of the answer, did not loop, and led to an answer.

Higher is better for each, so that a rule on any of them is `max_drop`, like every rate:

- `reasoning.closed`: no thought is left open. An answer without a thought is fine.
- `reasoning.no_leak`: the answer has no marker of a thought, except those in the question itself.
- `reasoning.no_loop`: the thought does not end in a loop, as `format.no_loop` knows one.
- `reasoning.committed`: the answer, with or without a thought, is visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.scoring.answer_format import looping_block
from qualgate.scoring.outcome import quote, right, wrong
from qualgate.scoring.reasoning import THINKING, apart
from qualgate.scoring.reasoning_forms import FORMS
from qualgate.scoring.scorer import Scorer, by_body
from qualgate.text.escaping import says_something

SCORER = "reasoning.thought/1"
METRICS = ("reasoning.closed", "reasoning.no_leak", "reasoning.no_loop", "reasoning.committed")


def score_thought(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """All four metrics of an answer with its thought. Never raises."""
    reply = apart(body, text)
    loop = looping_block(reply.thought)
    leaked = reply.leaked if reply.leaked and reply.leaked not in _asked(body) else ""
    faults = {
        "reasoning.closed": ("unclosed", "the thought never ended") if reply.state == "open" else None,
        "reasoning.no_leak": ("leaked", f"{leaked} stands in the answer") if leaked else None,
        "reasoning.no_loop": ("loop", f"the thought ends in repetitions of {quote(loop)}") if loop else None,
        "reasoning.committed": None if says_something(reply.answer) else ("no_answer", "no answer came of the thought"),
    }
    return {
        metric: wrong(metric, SCORER, *fault) if fault else right(metric, SCORER) for metric, fault in faults.items()
    }


def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check, for reasoning.*, that the case or its set has `reasoning`."""
    if "reasoning" not in body:
        yield "reasoning.* needs `reasoning`, how thoughts are written, as `reasoning: think` in the set's YAML"


def _asked(body: Mapping[str, Any]) -> str:
    """Return the question without a final marker, which opens the thought."""
    texts = [message.get("content") for message in body.get("messages") or () if isinstance(message, dict)]
    prompt = body.get("prompt") or ""
    for opening in (*(form.opening.strip() for form in FORMS.values()), THINKING):
        prompt = prompt.rstrip().removesuffix(opening)
    return "\n".join(text for text in (*texts, prompt) if isinstance(text, str))


SCORERS = (
    Scorer(
        name="reasoning",
        version=SCORER,
        metrics=METRICS,
        function=by_body(score_thought),
        faults=faults,
        whole=True,
    ),
)
