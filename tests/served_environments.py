"""An environment with a stand-in for a server: its interpreter is real, its tool parser does as it is told.

The parser `hermes` reads `<tool_call>` and JSON behind it, closed or not; a text may also tell it to raise, to hang, to
end its process, to count the texts that it has read, or to look around.
"""

from __future__ import annotations

import os
import venv
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

PARSERS = """
import json, os, re, time
from types import SimpleNamespace as Box

class Hermes:
    def __init__(self, tokenizer, tools):
        self.vocab, self.tools = tokenizer.get_vocab(), tools
        if self.vocab.get("<tool_call>") is None:
            raise RuntimeError("no such token")

    def extract_tool_calls(self, text, request):
        print("parsing", text[:9])
        if "RAISE" in text:
            raise ValueError("no such text")
        if "HANG" in text:
            time.sleep(3600)
        if "DIE" in text:
            os._exit(3)
        if "LOOK" in text:
            try:
                found = os.listdir(text.partition("LOOK ")[2])
            except OSError as error:
                found = type(error).__name__
            return called([("f", json.dumps({"found": found}))])
        calls = []
        for said in re.findall(r"<tool_call>(.*?)(?:</tool_call>|$)", text, re.DOTALL):
            found = json.loads(said) if "NO JSON" not in said else {"name": "f", "arguments": "NO JSON"}
            given = found["arguments"]
            calls.append((found["name"], given if isinstance(given, str) else json.dumps(given)))
        return called(calls)

def called(calls):
    functions = [Box(function=Box(name=name, arguments=given)) for name, given in calls]
    return Box(tools_called=bool(calls), tool_calls=functions)

class ToolParserManager:
    @staticmethod
    def get_tool_parser(name):
        return {"hermes": Hermes, "openai": Hermes}[name]
"""
HARMONY = """
import re
from vllm.tool_parsers import called

class HarmonyParser:
    tool_parser_cls = None

    def __init__(self, tokenizer, tools):
        self.reads_calls = self.tool_parser_cls is not None

    def parse(self, text, request, enable_auto_tools, tokens):
        calls = re.findall(r"to=functions[.](\\w+).*?<.message.>([^<]*)", text) if self.reads_calls else []
        return None, None, [call.function for call in called(calls).tool_calls] or None
"""
ENCODING = """
from types import SimpleNamespace as Box

def get_encoding():
    return Box(encode=lambda text, allowed_special: [*text.encode()])
"""
PROTOCOL = """
class ChatCompletionRequest:
    def __init__(self, model, messages, tools, tool_choice):
        assert all(tool["type"] == "function" for tool in tools)
        self.tools = tools
"""


@cache
def stand_in(version: str = "9.8.7") -> str:
    """The interpreter of an environment with a vLLM of this version, made once a process."""
    folder = Path(mkdtemp(prefix="stand-in-"))
    venv.create(folder, symlinks=True)
    vllm = next(folder.glob("lib/python*/site-packages")) / "vllm"
    files = {
        "__init__.py": f"__version__ = {version!r}",
        "tool_parsers/__init__.py": PARSERS,
        "entrypoints/openai/chat_completion/protocol.py": PROTOCOL,
        "entrypoints/openai/parser/harmony_utils.py": ENCODING,
        "parser/harmony.py": HARMONY,
    }
    for name, text in files.items():
        (vllm / name).parent.mkdir(parents=True, exist_ok=True)
        (vllm / name).write_text(text)
    os.chmod(folder, 0o755)
    return str(folder / "bin" / "python")


def served_by(version: str = "9.8.7") -> dict[str, str]:
    """The key of a case or a gate file that names it."""
    return {"engine": "vllm", "python": stand_in(version)}
