"""Read from a server's command the name under which it will list its model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

NAMED = ("--served-model-name", "--alias")  # of vLLM and SGLang; of llama.cpp
OF_A_MODEL = ("--model", "--model-path")
SERVES = ("vllm", "sglang")  # programs that take the model behind `serve`
MODULES = ("vllm.entrypoints.openai.api_server", "sglang.launch_server")


def listed_name(command: str) -> str:
    """Return the name given by a flag; else, for vLLM and SGLang, the model in the command; "" if there is none."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    for index, word in enumerate(words):
        if word in MODULES:
            return _behind(words[index:], NAMED) or _behind(words[index:], OF_A_MODEL)
        if PurePath(word).name in SERVES and words[index + 1 : index + 2] == ["serve"]:
            return _served_by(words[index + 2 :])
    return _behind(words, NAMED)


def _served_by(words: Sequence[str]) -> str:
    first = next(iter(words), "")
    return _behind(words, NAMED) or (_behind(words, OF_A_MODEL) if first.startswith("-") else first)


def _behind(words: Sequence[str], flags: Sequence[str]) -> str:
    """Return the word after the first of these flags, or after its `=`; "" if none is there."""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            return value if equals else next(iter(words[index + 1 : index + 2]), "")
    return ""
