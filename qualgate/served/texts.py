"""Texts of a server's answers, as the in-process engine gives them."""

from __future__ import annotations

import json
from functools import partial

from qualgate.engine.prompts import load_tokenizer
from qualgate.engine.stopping import Stops
from qualgate.engine.thoughts import thought_tokens
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import UNCOUNTED, FinishReason, Job
from qualgate.scoring.reasoning import NONE, split, written
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.strict import read_calls
from qualgate.served.answer import Answer
from qualgate.served.asked import dialect_asked


class Texts:
    """Answers' texts as the in-process engine gives them: decoded here from token ids; else with the calls and thoughts
    that the server's parser took out, written in the case's form."""

    def __init__(self, job: Job, folder: ModelFolder | None) -> None:
        self._job, self._stop_ids = job, frozenset(folder.stop_ids) if folder else frozenset()
        self._stops = (
            Stops(load_tokenizer(folder.files), [prompt.until for prompt in job.prompts])
            if folder is not None
            else None
        )

    def of(self, row: int, answer: Answer) -> tuple[str, FinishReason, int | None]:
        """Return an answer's text, finish reason and thought tokens, counted here from token ids, else by the server. A
        server's count of none for an existing thought, or of more than the answer has, is no count."""
        way = self._job.prompts[row].reasoning
        if self._stops is None or answer.token_ids is None:
            visible = "" if answer.calls and answer.text.isspace() else answer.text  # what stood between tags
            text = written(answer.thought, visible, self._calls(row, answer), way)
            counted = answer.thought_tokens or 0
            credible = 0 < counted <= (answer.completion_tokens or counted)
            if way == NONE:
                return text, answer.finish, None
            silent = split(text, way).state == "none"
            return text, answer.finish, 0 if silent else counted if credible else UNCOUNTED
        ids = list(answer.token_ids)
        ended = answer.finish == "stop" and bool(ids) and ids[-1] in self._stop_ids
        answer_ids = ids[:-1] if ended else ids
        thought = thought_tokens(answer_ids, way, partial(self._stops.text, row))
        return self._stops.text(row, answer_ids), "eos" if ended else answer.finish, thought

    def _calls(self, row: int, answer: Answer) -> str:
        """Return an answer's calls in the case's dialect, "" without calls.

        Calls that the dialect cannot write are no right calls: they are written in a form that no parser takes for one.
        """
        if not answer.calls:
            return ""
        calls = [
            {"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in answer.calls
        ]
        try:
            return dialect(dialect_asked(self._job.prompts[row]) or "hermes").serialise(read_calls(calls))
        except ValueError:  # arguments that are no JSON, a name that the dialect cannot write: no right call
            return "".join(f"<tool_call>{json.dumps(name)} {arguments}</tool_call>" for name, arguments in answer.calls)
