"""DeepSeek's dialects: V3 and V3.1 write JSON between tokens; from V3.2 on, tags with the name DSML.

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="NAME">
    <｜DSML｜parameter name="KEY" string="true">TEXT</｜DSML｜parameter>
    <｜DSML｜parameter name="KEY" string="false">JSON</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

V4 calls the frame tool_calls; V4.1 calls it ` calls` and has a space before each name. `string` declares whether a
value is text, so no schema is needed. vLLM reads text if it is "false" and the value is no JSON, or if it is missing;
here that is a fault, because the model was instructed to write it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools, read_arguments
from qualgate.scoring.tools.dialects.json_calls import joined
from qualgate.scoring.tools.dialects.sources import SGLANG, VLLM, template
from qualgate.scoring.tools.dialects.stream import Dialect
from qualgate.scoring.tools.dialects.tagged import reader, writer


def _deepseek(separator: str, form: str) -> Callable[[str, Tools], list[Call]]:
    """Return the reader of a call in a separator's form.

    separator: a pattern with the group `name`. form: the code fence's end behind the arguments, "" without a fence.
    """
    head = re.compile(separator)

    def read(text: str, tools: Tools) -> list[Call]:
        """Read the one call of a block. BadCall for anything else."""
        match = head.match(text)
        if not match:
            raise BadCall("call_shape", "no name before <｜tool▁sep｜>")
        arguments = text[match.end() :]
        if form:
            arguments = arguments.rstrip()
            if not arguments.endswith(form):
                raise BadCall("unbalanced", "the code fence around the arguments is not closed")
            arguments = arguments.removesuffix(form)
        return [Call(match["name"].strip(), read_arguments(arguments))]

    return read


_NAME = r"[^\s<](?:[^\n<]*[^\s<])?"
_DEEPSEEK = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
DEEPSEEK_V3 = Dialect(
    name="deepseek_v3",
    source=VLLM + "tool_parsers/deepseekv3_tool_parser.py; " + SGLANG + "deepseekv3_detector.py",
    frame=_DEEPSEEK[:2],
    open=_DEEPSEEK[2:3],
    close=_DEEPSEEK[3],
    stray=_DEEPSEEK[4:],
    read=_deepseek(r"\s*function<｜tool▁sep｜>(?P<name>[^\n<]+)\n```json\n", "\n```"),
    write=joined(
        "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>",
        _DEEPSEEK,
        name=_NAME,
        around="<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
    ),
)
DEEPSEEK_V31 = replace(
    DEEPSEEK_V3,
    name="deepseek_v31",
    source=template("deepseek-ai-DeepSeek-V3.1.jinja", "0374c5b6e4c19370262d93e2c3f2a98c9af9fe1f")
    + "; "
    + VLLM
    + "tool_parsers/deepseekv31_tool_parser.py",
    read=_deepseek(r"(?P<name>[^\n<]+)<｜tool▁sep｜>", ""),
    write=joined(
        "<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>",
        _DEEPSEEK,
        name=_NAME,
        between="",
        around="<｜tool▁calls▁begin｜>{}<｜tool▁calls▁end｜>",
    ),
)


def _dsml(name: str, source: str, frame: str, space: str = "") -> Dialect:
    """Return a dialect of DSML tags. frame: the tag around all calls. space: what stands behind the tags' marker."""
    opening, closing = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    begin, end = f"{opening}{frame}>", f"{closing}{frame}>"
    return Dialect(
        name=name,
        source=source,
        frame=(begin, end),
        open=(f'{opening}invoke name="',),
        close=f"{closing}invoke>",
        stray=(f"{opening}parameter", f"{closing}parameter>"),
        read=reader(
            r'(?P<name>[^">\n]+)">',
            "",
            rf'\s*{opening}parameter name="(?P<key>[^">]+)" string="(?:(?P<text>true)|false)">'
            rf"(?P<value>.*?){closing}parameter>",
            declared=True,
        ),
        write=writer(
            f'{opening}invoke name="{{key}}">\n',
            f'{opening}parameter name="{{key}}" string="{{text}}">{{value}}{closing}parameter>\n',
            f"{closing}invoke>",
            ("｜DSML｜",),
            around=(f"{begin}\n", f"\n{end}"),
            named=r'[^">\n]+',
        ),
    )


DEEPSEEK_V32 = _dsml(
    "deepseek_v32",
    template("DeepSeek-V3.2.jinja", "708653def250076cc56382f9c524af9db855542c")
    + f"; {VLLM}parser/deepseek_v32.py; {SGLANG}deepseekv32_detector.py",
    "function_calls",
)
DEEPSEEK_V4 = _dsml("deepseek_v4", f"{VLLM}parser/deepseek_v4.py; {SGLANG}deepseekv4_detector.py", "tool_calls")
DEEPSEEK_V41 = _dsml("deepseek_v41", f"{VLLM}parser/deepseek_v41.py; {SGLANG}deepseekv41_detector.py", "calls", " ")
