"""From cases to token ids: chat template, then tokenizer. Needs no torch for most models.

Importing transformers' AutoTokenizer loads torch (2 s, 190 MB), so the process that only plans avoids it where the
answer is known: a Llama model that asks for the plain fast tokenizer gets just that.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.engine import loglikelihood_windows
from qualgate.engine.identity import read_json
from qualgate.errors import UsageError
from qualgate.records import Case, Window

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST_WINDOW = 2048  # tokens of a text weighed at once by a model whose config names no context, as lm-eval has it
RENDER_SECONDS = 20  # a template that renders one case this long is taken for endless


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer AutoTokenizer would give. Raises UsageError when it cannot be loaded."""
    settings = read_json(folder / "tokenizer_config.json")
    plain = settings.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend")
    if (
        plain
        and (folder / "tokenizer.json").is_file()
        and read_json(folder / "config.json").get("model_type") == "llama"
    ):
        from transformers import PreTrainedTokenizerFast as tokenizer_class
    else:
        from transformers import AutoTokenizer as tokenizer_class
    try:
        return tokenizer_class.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises a bare Exception for a damaged tokenizer.json
        raise UsageError(
            f"The tokenizer in {folder} cannot be loaded: {error}. Save it there again with save_pretrained."
        ) from error


def context_length(folder: Path) -> int | None:
    """The most tokens the model was made for, or None when its config names no limit."""
    config = read_json(folder / "config.json")
    text = config.get("text_config")
    for settings in (config, text if isinstance(text, dict) else {}):
        for key in ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"):
            if type(settings.get(key)) is int:
                return settings[key]
    return None


class Renderer:
    """Renders cases for one model."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = load_tokenizer(folder)

    def render(self, cases: Sequence[Case]) -> list[tuple[int, ...]]:
        """Token ids of each case's prompt: `messages` through the chat template, or `prompt` as it stands.

        Raises UsageError naming the case whose prompt cannot be made.
        """
        chats = [self._chat(case) if "messages" in case.body else None for case in cases]
        # The template writes the special tokens of a chat itself; a raw prompt gets those of the tokenizer.
        token_ids: list[tuple[int, ...]] = [()] * len(cases)
        for rows, special in (
            ([row for row, chat in enumerate(chats) if chat is not None], False),
            ([row for row, chat in enumerate(chats) if chat is None and "until" not in cases[row].body], True),
        ):
            texts = [chat if (chat := chats[row]) is not None else cases[row].body["prompt"] for row in rows]
            if texts:
                encoded = self.tokenizer(texts, add_special_tokens=special, verbose=False)["input_ids"]
                for row, ids in zip(rows, encoded, strict=True):
                    token_ids[row] = tuple(ids)
        for row, case in enumerate(cases):
            if "until" in case.body:  # lm-eval's: a prompt that spells the beginning-of-text token gets no second one
                token_ids[row] = loglikelihood_windows.encoded(self.tokenizer, case.body["prompt"])
        for case, ids in zip(cases, token_ids, strict=True):
            if not ids:
                raise UsageError(f"{case.evalset}/{case.id}: the prompt has no tokens. Give it some text.")
        return token_ids

    def requests(self, case: Case) -> tuple[tuple[Window, ...], ...]:
        """The windows of each likelihood request: [context, continuation], or [text], which is read in windows.

        Raises UsageError naming the case whose request has nothing to read.
        """
        limit = context_length(self.folder)
        try:
            return tuple(
                (loglikelihood_windows.continuation_window(self.tokenizer, texts[0], texts[1]),)
                if len(texts) == 2
                else loglikelihood_windows.rolling_windows(
                    self.tokenizer, texts[0], LONGEST_WINDOW if limit is None else limit
                )
                for texts in case.body["requests"]
            )
        except UsageError as error:
            raise UsageError(f"{case.evalset}/{case.id}: {error}") from None

    def _chat(self, case: Case) -> str:
        if not self.tokenizer.chat_template:
            raise UsageError(
                f"{case.evalset}/{case.id} has messages, but the tokenizer in {self.folder} has no chat template. Add "
                "chat_template.jinja there, or write the case with `prompt`."
            )
        try:
            with _time_limit(RENDER_SECONDS):
                rendered = self.tokenizer.apply_chat_template(
                    case.body["messages"], tools=case.body.get("tools"), add_generation_prompt=True, tokenize=False
                )
                assert isinstance(rendered, str)
                return rendered
        except Exception as error:  # a template is a program of the model's author: anything can go wrong in it
            raise UsageError(
                f"{case.evalset}/{case.id}: the chat template in {self.folder} fails on this case: "
                f"{type(error).__name__}: {error}"
            ) from error


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError inside the block after `seconds`; only where signals arrive, in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(signum: int, frame: object) -> None:
        raise TimeoutError(f"still rendering after {seconds:g} s; does the template loop without end?")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
