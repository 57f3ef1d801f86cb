"""Read texts with the tool parsers of an inference server, inside that server's own Python environment.

The first line in is {"engine", "encodings"}, and its reply {"version"}. Each line after that is {"parser", "text",
"tools", "lacks"}: the parser by the server's name for it, and a token that the model's tokenizer does not have, or "".
Its reply is {"calls"}: a list of [name, arguments as the server would send them], empty where it calls no tool. Where
the server's code raises, the reply is {"raised"}.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import os
import re

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO

    Reader = Callable[[dict[str, Any]], list[list[str]]]

CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "VLLM_CACHE_ROOT", "VLLM_CONFIG_ROOT", "HF_HOME")


class Vocabulary(dict[str, int]):
    """A vocabulary that has every token a parser looks up by name."""

    def __init__(self, lacks: str) -> None:
        super().__init__()
        self._lacks = lacks

    def __contains__(self, token: object) -> bool:
        return self.get(token) is not None

    def __missing__(self, token: str) -> int:
        number = self.get(token)
        if number is None:
            raise KeyError(token)
        return number

    def get(self, token: Any, default: Any = None) -> Any:
        """Return a token's number, assigned at its first lookup."""
        if not isinstance(token, str) or len(token) < 2 or token == self._lacks:
            return default
        return self.setdefault(token, len(self))


class Characters:
    """A tokenizer of characters and of looked-up tokens, with the interface that parsers use."""

    chat_template, name_or_path, is_fast, init_kwargs = "", "characters", True, {}
    bos_token = bos_token_id = eos_token = eos_token_id = None
    vocab_size = max_token_id = 2_000_000
    first = 500_000  # the number of the character 0

    def __init__(self, lacks: str) -> None:
        self.vocab = Vocabulary(lacks)

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def all_special_tokens(self) -> list[str]:
        """The looked-up tokens."""
        return [*self.vocab]

    @property
    def all_special_ids(self) -> list[int]:
        """Numbers of the looked-up tokens."""
        return [*self.vocab.values()]

    def get_vocab(self) -> Vocabulary:
        """Return the numbers by token."""
        return self.vocab

    get_added_vocab = get_vocab

    def tokenize(self, text: str, **_: Any) -> list[str]:
        """Split a text into the longest looked-up tokens, and characters between them."""
        tokens = sorted(self.vocab, key=len, reverse=True)
        return re.findall("|".join([*map(re.escape, tokens), "."]), text, re.DOTALL)

    def encode(self, text: str, **_: Any) -> list[int]:
        """Return the numbers of the text's tokens."""
        return [self._number(token) for token in self.tokenize(text)]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        """Convert one token or several."""
        if isinstance(tokens, str):
            return self._number(tokens)
        return [self._number(token) for token in tokens]

    def convert_ids_to_tokens(self, numbers: list[int], **_: Any) -> list[str]:
        """Convert each number to its text."""
        return [self.decode([number]) for number in numbers]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        """Join the tokens."""
        return "".join(tokens)

    def decode(self, numbers: Any, **_: Any) -> str:
        """Return the text of one number or several."""
        several = [numbers] if isinstance(numbers, int) else numbers
        names = [*self.vocab]
        return "".join(names[number] if number < self.first else chr(number - self.first) for number in several)

    def _number(self, token: str) -> Any:
        return self.first + ord(token) if len(token) == 1 else self.vocab.get(token)


def vllm() -> tuple[str, Reader]:
    """Return vLLM's version, and its reader of a finished answer."""
    os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"
    parsers = importlib.import_module("vllm.tool_parsers").ToolParserManager
    protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")

    def read(question: dict[str, Any]) -> list[list[str]]:
        offered = {"tools": question["tools"], "tool_choice": "auto"}
        request = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], **offered)
        tokenizer = Characters(question["lacks"])
        if question["parser"] == "harmony":
            calls = _harmony(tokenizer, request, question["text"])
        else:
            parser_class = parsers.get_tool_parser(question["parser"])
            try:
                parser = parser_class(tokenizer, request.tools)
            except TypeError:  # parsers of older versions are given no tools
                parser = parser_class(tokenizer)
            result = parser.extract_tool_calls(question["text"], request)
            calls = [call.function for call in result.tool_calls] if result.tools_called else []
        return [[call.name, call.arguments] for call in calls]

    return importlib.import_module("vllm").__version__, read


def _harmony(tokenizer: Any, request: Any, text: str) -> list[Any]:
    """Return the calls of an answer in gpt-oss's form, which vLLM reads from tokens of its own encoding."""
    encoding = importlib.import_module("vllm.entrypoints.openai.parser.harmony_utils").get_encoding()
    harmony = importlib.import_module("vllm.parser.harmony").HarmonyParser
    # As `--tool-call-parser openai` does; without it vLLM 0.32 reads no calls.
    harmony.tool_parser_cls = importlib.import_module("vllm.tool_parsers").ToolParserManager.get_tool_parser("openai")
    parser = harmony(tokenizer, request.tools)
    tokens = encoding.encode(text, allowed_special="all")
    return parser.parse(text, request, True, tokens)[2] or []


def sglang() -> tuple[str, Reader]:
    """Return SGLang's version, and its reader of a finished answer, which first checks for a call at all."""
    parsers = importlib.import_module("sglang.srt.function_call.function_call_parser")
    tool = importlib.import_module("sglang.srt.entrypoints.openai.protocol").Tool
    try:  # its server does this before anything else, from some version on
        rewrite = importlib.import_module("sglang.srt.function_call.utils").normalize_json_schema_types
    except AttributeError:
        rewrite = None

    def read(question: dict[str, Any]) -> list[list[str]]:
        tools = [tool(**schema) for schema in question["tools"]]
        if rewrite is not None:
            for parsed in tools:
                rewrite(parsed.function.parameters)
        parser = parsers.FunctionCallParser(tools, question["parser"])
        calls = parser.parse_non_stream(question["text"])[1] if parser.has_tool_call(question["text"]) else []
        return [[call.name, call.parameters] for call in calls]

    return importlib.metadata.version("sglang"), read


def serve(questions: BinaryIO, replies: BinaryIO) -> None:
    """Reply to each line until there are no more."""
    logging.disable(logging.CRITICAL)
    for name in CACHES:  # an existing place, since none can be made behind every wall
        os.environ[name] = os.environ.get("HOME", "/tmp")
    read: Reader | None = None
    for line in questions:
        question = json.loads(line)
        try:
            if read is None:
                if question["encodings"]:
                    os.environ["TIKTOKEN_ENCODINGS_BASE"] = question["encodings"]
                version, read = {"vllm": vllm, "sglang": sglang}[question["engine"]]()
                reply = {"version": str(version)}
            else:
                reply = {"calls": read(question)}
        except Exception as error:  # theirs, so anything
            reply = {"raised": f"{type(error).__name__}: {error}"[:500]}
        replies.write(json.dumps(reply | {"nonce": question["nonce"]}).encode() + b"\n")
        replies.flush()
