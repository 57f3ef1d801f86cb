"""From cases to token ids: chat template, then tokenizer. Needs no torch for most models.

Importing transformers' AutoTokenizer loads torch (2 s, 190 MB), so a process that only plans avoids it where the answer
is known: a Llama model with the plain fast tokenizer gets exactly that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from qualgate.engine import loglikelihood_windows
from qualgate.engine.chat_template import TemplateFault, render_chat
from qualgate.errors import UsageError
from qualgate.quant.agreement.templates import DEFAULT, templates
from qualgate.quant.model_files import TEMPLATE_FILE, ModelFiles
from qualgate.records import Case, Window

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

LONGEST_WINDOW = 2048  # tokens of a text weighed at once by a model whose config names no context, as lm-eval has it


def load_tokenizer(files: ModelFiles) -> PreTrainedTokenizerBase:
    """Return the tokenizer that AutoTokenizer gives. Raises UsageError when it cannot be loaded.

    A plain fast tokenizer is built from the files read already. Others are left to transformers, which opens their
    files itself: tokenizer_config.json three times, tokenizer.json up to three times, config.json, and each other file
    once. The chat templates are those of the given files.
    """
    tokenizer = _loaded(files)
    named = templates(files)
    tokenizer.chat_template = named if named.keys() - {DEFAULT} else named.get(DEFAULT)
    return tokenizer


def _loaded(files: ModelFiles) -> PreTrainedTokenizerBase:
    """Load a tokenizer: a plain fast one from the files read already, others by transformers.

    UsageError for files that transformers cannot load.
    """
    settings = files.json("tokenizer_config.json")
    plain = settings.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend")
    if plain and files.has("tokenizer.json") and files.config.get("model_type") == "llama":
        with suppress(Exception):  # what is wrong with its files, transformers says below
            if (tokenizer := _of_files(files)) is not None:
                return tokenizer
        from transformers import PreTrainedTokenizerFast as tokenizer_class
    else:
        from transformers import AutoTokenizer as tokenizer_class
    try:
        return tokenizer_class.from_pretrained(files.path, local_files_only=True)  # pyrefly: ignore[bad-return]
    except Exception as error:  # tokenizers raises a bare Exception for a damaged tokenizer.json
        raise UsageError(
            f"The tokenizer in {files.path} cannot be loaded: {error}. Save it there again with save_pretrained."
        ) from error


# Keys of tokenizer_config.json for a tokenizer that is built here; of other keys transformers makes more than
# an argument of the same name.
_PLAIN_SETTINGS = {
    "added_tokens_decoder", "backend", "chat_template", "clean_up_tokenization_spaces", "is_local", "local_files_only",
    "model_input_names", "model_max_length", "name_or_path", "padding_side", "tokenizer_class", "truncation_side",
}  # fmt: skip
_NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def _of_files(files: ModelFiles) -> PreTrainedTokenizerBase | None:
    """Return what PreTrainedTokenizerFast.from_pretrained makes of the folder, without opening a file; None if files
    other than tokenizer.json and tokenizer_config.json matter.

    With a vocabulary over 100,000 entries transformers reads config.json once more, for its model_type.
    """
    from tokenizers import AddedToken, Tokenizer
    from transformers import PreTrainedTokenizerFast

    settings = dict(files.json("tokenizer_config.json"))
    legacy = ("special_tokens_map.json", "added_tokens.json", "tokenizer.model", "tekken.json", "tiktoken.model")
    named = {key: settings.pop(key) for key in _NAMED_TOKENS if key in settings}
    if (
        settings.keys() - _PLAIN_SETTINGS
        or any((files.path / name).exists() for name in legacy)
        or not all(token is None or isinstance(token, str) for token in named.values())
    ):
        return None
    del settings["tokenizer_class"]
    if files.has(TEMPLATE_FILE):
        settings["chat_template"] = files.text(TEMPLATE_FILE)
    if "added_tokens_decoder" in settings:
        added = {int(token): AddedToken(**fields) for token, fields in settings["added_tokens_decoder"].items()}
    else:
        fields = [dict(entry) for entry in files.json("tokenizer.json")["added_tokens"]]
        added = {entry.pop("id"): AddedToken(**entry) for entry in fields}
    by_text = {str(token): token for token in added.values()}
    settings |= {"added_tokens_decoder": added, "name_or_path": str(files.path), "is_local": True}
    settings |= {key: token and by_text.get(token, token) for key, token in named.items()}
    backend = Tokenizer.from_buffer(files.raw["tokenizer.json"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, local_files_only=True, **settings)


class Renderer:
    """Render cases as token ids for one model."""

    def __init__(self, files: ModelFiles) -> None:
        """Raise UsageError when the tokenizer cannot be loaded."""
        self.files = files
        self.tokenizer = load_tokenizer(files)

    def render(self, cases: Sequence[Case]) -> list[tuple[int, ...]]:
        """Return the token ids of each case's prompt: `messages` through the chat template, or `prompt` as it stands.

        Raises UsageError naming the case whose prompt cannot be made.
        """
        self._check_calls_are_shown(cases)
        chats = [self.text(case) if "messages" in case.body else None for case in cases]
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

    def _check_calls_are_shown(self, cases: Sequence[Case]) -> None:
        """Raise UsageError if the template drops the tool calls of earlier messages, on which the model's next turn
        depends. Only the first such case is checked."""
        for case in cases:
            messages = case.body.get("messages", ())
            if any(isinstance(message, dict) and message.get("tool_calls") for message in messages):
                silent = [{key: value for key, value in message.items() if key != "tool_calls"} for message in messages]
                if self.text(case) == self.text(Case(evalset=case.evalset, body=case.body | {"messages": silent})):
                    raise UsageError(
                        f"{case.evalset}/{case.id}: an earlier message calls tools, and the chat template in "
                        f"{self.files.path} shows nothing of `tool_calls`, so the model would be asked to go on from "
                        "calls that it cannot see. Use a template that writes them, or leave out cases with `turns`."
                    )
                return

    def requests(self, case: Case) -> tuple[tuple[Window, ...], ...]:
        """Return the windows of each likelihood request: [context, continuation], or [text], which is read in windows.

        Raises UsageError naming the case whose request has nothing to read.
        """
        limit = self.files.context_length
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

    def text(self, case: Case) -> str:
        """Render a case's `messages` up to the model's turn. UsageError naming the case."""
        if not self.tokenizer.chat_template:
            raise UsageError(
                f"{case.evalset}/{case.id} has messages, but the tokenizer in {self.files.path} has no chat template. "
                "Add chat_template.jinja there, or write the case with `prompt`."
            )
        try:
            return render_chat(self.tokenizer, case.body["messages"], case.body.get("tools"))
        except TemplateFault as fault:
            raise UsageError(
                f"{case.evalset}/{case.id}: the chat template in {self.files.path} fails on this case: {fault}"
            ) from None
