"""Recognise an endpoint's error in place of an answer: some harnesses store it as the answer, and score it as wrong.

BFCL writes `Error during inference: …` as a result; others write what their client or server said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

NO_ANSWER = "it is an endpoint's error and no answer: {!r:.80}"
READ = 400  # characters of a text that are looked at
FIELDS = (  # fields of a row in which harnesses write the answer
    "extracted", "text", "output", "answer", "response", "completion", "prediction", "generation", "result",
    "model_result", "model_result_raw",
)  # fmt: skip
INFERENCE_ERROR = "inference_error"  # how BFCL's `error_type` ends where the answer is an error
# Whole texts of errors, without surrounding signs.
WHOLE = (
    r"error during inference",
    r"error code: [45]\d\d",
    r"(error: )?((http(/[\d.]+)?|status) )?(429 too many requests|500 internal server error|502 bad gateway"
    r"|503 service unavailable|504 gateway time-?out)",
    r"internal server error",
    r"(connection error|request timed out|read timed out|connection refused)",
)
# First lines of errors from clients and servers: the exception's name or its code, then the message.
FIRST_LINES = (
    r"error during inference: .*",
    r"error code: [45]\d\d - .*",
    r"\{\s*[\"']error[\"']\s*:\s*\{\s*[\"'](message|type|code|param)[\"']\s*:(?s:.*)",
    r"(openai|anthropic|litellm|httpx|httpcore|requests|aiohttp|urllib3|grpc|ray|vllm|sglang)(\.\w+)*\."
    r"\w*(error|exception|timeout)(: .*)?",
    r"(api|ratelimit|apiconnection|apitimeout|internalserver|serviceunavailable)error: .*",
    r"api error: [45]\d\d\b.*",
    r"this model's maximum context length is [\d,]+ tokens\. however, .*",
    r"(torch\.)?(cuda )?out ?of ?memory(error)?\b.{0,80}tried to allocate.*",
    r"(runtimeerror: )?cuda error: .*",
)
_BEFORE, _AFTER = r"[\s\[\"'<*]*", r"[\s\]\"'>*.]*"
_SHIPPED = re.compile(
    rf"{_BEFORE}(?:(?:{'|'.join(WHOLE)}){_AFTER}|(?:{'|'.join(FIRST_LINES)})(?:\n(?s:.*))?)", re.IGNORECASE
)


def error_reader(more: Iterable[str] | None = None) -> Callable[[str], bool]:
    """Return a function that tells whether a text is an error. more: beginnings of further errors, case-insensitive;
    empty (not None): no text is an error."""
    if more is None:
        return lambda text: _SHIPPED.fullmatch(text[:READ]) is not None
    alternatives = "|".join(re.escape(text.strip()) for text in more)
    if not alternatives:
        return lambda text: False
    pattern = re.compile(rf"{_BEFORE}(?:{alternatives})", re.IGNORECASE)
    return lambda text: (pattern.match(text[:READ]) or _SHIPPED.fullmatch(text[:READ])) is not None
