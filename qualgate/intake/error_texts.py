"""Tell the error of an endpoint from an answer: some harnesses write it where the answer stands, and score it as wrong.

BFCL writes `Error during inference: …` as a result; others write what their client or server said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

NO_ANSWER = "it is an endpoint's error and no answer: {!r:.80}"
READ = 400  # characters of a text that are looked at
# How such texts begin. A text of one of these libraries' exceptions begins with its module.
BEGINNINGS = (
    r"error during inference\b",
    r"([\w.-]+:)*inference_error$",
    r"error code: [45]\d\d\b",
    r"(http/[\d.]+ |http |status )?(429 too many requests|500 internal server error|502 bad gateway|503 service "
    r"unavailable|504 gateway time-?out)",
    r"internal server error\b",
    r"(openai|anthropic|litellm|httpx|httpcore|requests|aiohttp|urllib3|grpc|ray|vllm|sglang)(\.\w+)*\."
    r"\w*(error|exception|timeout)\b",
    r"(connection error|request timed out|read timed out|connection refused)\.?$",
    r"(api|rate ?limit|apiconnection|apitimeout|internalserver|serviceunavailable) ?error: ",
    r"this model's maximum context length is \d",
    r"(torch\.)?(cuda )?out ?of ?memory(error)?\b.{0,80}tried to allocate|cuda error: ",
)


def error_reader(more: Iterable[str] = ()) -> Callable[[str], bool]:
    """What tells whether a text is an error. more: how further ones begin, letter for letter but for upper case."""
    patterns = "|".join((*BEGINNINGS, *(re.escape(text.strip()) for text in more)))
    begins = re.compile(rf"[\s\[\"'<*]*(?:{patterns})", re.IGNORECASE)
    return lambda text: begins.match(text[:READ]) is not None
