"""What vLLM's parsers of tool calls read. Run by an interpreter that has vLLM and nothing of ours:

    INTERPRETER vllm_parsers.py < questions > answers

A question is a JSON line {parser, text, tools, without}, the last a token that the model's tokenizer lacks, or "". An
answer is vLLM's version in the first line, then a line for each: a list of {name, arguments}, null where the parser
calls no tool, or {"raised": …}.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import sys
from typing import Any

# What a model's tokenizer holds as one token each, as far as a parser asks for its number.
_SPECIAL = """<think> </think> <tool_call> </tool_call> <seed:think> </seed:think> <seed:tool_call> </seed:tool_call>
<|channel> <channel|> <|tool_call> <tool_call|> <|"|> <|turn> <turn|> <|tool_response> <|tool_call_start|>
<|tool_call_end|> <longcat_tool_call> </longcat_tool_call> <｜tool_calls_begin｜> <｜tool_calls_end｜>
<｜tool_call_begin｜> <｜tool_call_end｜> <｜tool_sep｜> <|tools_prefix|> <|tools_suffix|> <|function_call|>
<|message_sep|> <|role_sep|> <|open|> <|close|> <|sep|> <|content_invoke_tool_json|> <|content_text|>
<|content_thinking|> <|end_message|> <|message_model|> <|content_invoke_tool_text|> <|content_tool_error|>
<|content_model_end_sampling|> <|im_start|> <|im_end|> <|plamo:tag|> <|plamo:begin_ <|plamo:end_ :plamo|> <arg_key>
</arg_key> <arg_value> </arg_value> <tool_calls> </tool_calls> <|tool_calls_section_begin|>
<|tool_calls_section_end|> <|tool_call_begin|> <|tool_call_end|> <|tool_call_argument_begin|> <|user|> <|assistant|>
<|system|> <|observation|> <function </function> <|python_tag|> <mm:think> </mm:think> [TOOL_CALLS] [ARGS] [CALL_ID]
<minimax:tool_call> </minimax:tool_call> <TOOLCALL> </TOOLCALL> <|START_ACTION|> <|END_ACTION|> <tool_sep>
<start_function_call> <end_function_call> <escape> <｜tool▁calls▁begin｜> <｜tool▁calls▁end｜> <｜tool▁call▁begin｜>
<｜tool▁call▁end｜> <｜tool▁sep｜> <｜DSML｜function_calls> </｜DSML｜function_calls> <｜DSML｜tool_calls>
</｜DSML｜tool_calls> <|tool_call|> <function_call> <|action_start|> <|action_end|> <|plugin|>
<response> </response> <0x0A> <ifm|tool_calls> </ifm|tool_calls> <ifm|tool_call> </ifm|tool_call> <ifm|arg_key>
</ifm|arg_key> <ifm|arg_type> </ifm|arg_type> <ifm|arg_value> </ifm|arg_value> <ifm|think> </ifm|think>
<ifm|think_fast> </ifm|think_fast> <ifm|think_faster> </ifm|think_faster> [THINK] [/THINK]"""
SPECIAL = sorted({*_SPECIAL.split(), "<｜DSML｜ calls>", "</｜DSML｜ calls>"}, key=lambda one: (-len(one), one))
TOKEN = re.compile("|".join(map(re.escape, SPECIAL)) + "|.", re.DOTALL)


class Characters:
    """A tokenizer of characters and of those tokens, as far as parsers ask one."""

    chat_template, name_or_path, is_fast, init_kwargs = "", "characters", True, {}
    bos_token = bos_token_id = eos_token = eos_token_id = None
    vocab_size = max_token_id = 2_000_000

    def __init__(self, without: str = "") -> None:
        self.vocab = {token: number for number, token in enumerate(SPECIAL) if token != without}
        self.all_special_tokens, self.all_special_ids = SPECIAL, list(range(len(SPECIAL)))

    def __len__(self) -> int:
        return self.vocab_size

    def get_vocab(self) -> dict[str, int]:
        return self.vocab

    get_added_vocab = get_vocab

    def tokenize(self, text: str, **_: Any) -> list[str]:
        return TOKEN.findall(text)

    def encode(self, text: str, **_: Any) -> list[int]:
        return [self._number(token) for token in TOKEN.findall(text)]

    def convert_tokens_to_ids(self, tokens: Any) -> Any:
        return self._number(tokens) if isinstance(tokens, str) else [self._number(token) for token in tokens]

    def convert_ids_to_tokens(self, numbers: list[int], **_: Any) -> list[str]:
        return [self.decode([number]) for number in numbers]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)

    def decode(self, numbers: Any, **_: Any) -> str:
        several = [numbers] if isinstance(numbers, int) else numbers
        return "".join(SPECIAL[one] if one < len(SPECIAL) else chr(one - len(SPECIAL)) for one in several)

    def _number(self, token: str) -> Any:
        return self.vocab.get(token, len(SPECIAL) + ord(token) if len(token) == 1 else None)


def answer(parsers: Any, protocol: Any, question: dict[str, Any]) -> Any:
    offered = {"tools": question["tools"], "tool_choice": "auto"} if question["tools"] else {}
    asked = protocol.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "?"}], **offered)
    parser = parsers.ToolParserManager.get_tool_parser(question["parser"])
    tokenizer = Characters(question["without"])
    try:
        one = parser(tokenizer, asked.tools)
    except TypeError:
        one = parser(tokenizer)
    said = one.extract_tool_calls(question["text"], asked)
    return [_call(call.function) for call in said.tool_calls] if said.tools_called else None


def _call(function: Any) -> dict[str, Any]:
    try:
        arguments = json.loads(function.arguments)
    except ValueError:
        arguments = {"no JSON": function.arguments}
    return {"name": function.name, "arguments": arguments}


def main() -> None:
    os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    parsers = importlib.import_module("vllm.tool_parsers")
    protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
    print(json.dumps(importlib.import_module("vllm").__version__), file=answers)
    for line in sys.stdin:
        try:
            found = answer(parsers, protocol, json.loads(line))
        except Exception as error:  # theirs, so anything
            found = {"raised": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(found, ensure_ascii=False), file=answers, flush=True)


if __name__ == "__main__":
    main()
