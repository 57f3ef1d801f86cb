"""Dialects whose arguments stand between tags, an element each, and have no types of their own: see `tagged`."""

from __future__ import annotations

from dataclasses import replace
from xml.sax.saxutils import unescape

from qualgate.scoring.tools.dialects import qwen
from qualgate.scoring.tools.dialects.sources import SGLANG, VLLM, template
from qualgate.scoring.tools.dialects.stream import Dialect
from qualgate.scoring.tools.dialects.tagged import reader, writer

_TAGS = ("<tool_call>", "</tool_call>")

QWEN3_CODER = Dialect(
    name="qwen3_coder",
    source=VLLM + "parser/qwen3.py; " + SGLANG + "qwen3_coder_detector.py",
    open=("<tool_call>",),
    close="</tool_call>",
    stray=("<function=", "</function>"),
    read=qwen.read,
    scanner=qwen.Blocks,
    write=writer(
        "<tool_call>\n<function={key}>\n",
        "<parameter={key}>\n{value}\n</parameter>\n",
        "</function>\n</tool_call>",
        (*_TAGS, "<function=", "</function>", "<parameter=", "</parameter>", ">\n"),
    ),
)

MIMO = replace(
    QWEN3_CODER,
    name="mimo",
    source=VLLM + "parser/mimo.py",
    read=qwen.read_whole,
    write=writer(
        "<tool_call>\n<function={key}>\n",
        "<parameter={key}>{value}</parameter>\n",
        "</function>\n</tool_call>",
        (*_TAGS, "<function=", "</function>", "<parameter=", "</parameter>", ">\n"),
    ),
)

SEED_OSS = replace(
    QWEN3_CODER,
    name="seed_oss",
    source=template("ByteDance-Seed-OSS.jinja", "b1933d306f928b19e1601e640c4f1a2eb84b238a")
    + f"; {VLLM}parser/seed_oss.py",
    open=("<seed:tool_call>",),
    close="</seed:tool_call>",
    thinks=("<seed:think>", "</seed:think>"),
    write=writer(
        "<seed:tool_call>\n<function={key}>\n",
        "<parameter={key}>{value}</parameter>\n",
        "</function>\n</seed:tool_call>",
        ("seed:tool_call>", "<function=", "</function>", "<parameter=", "</parameter>", ">\n"),
    ),
)

# A key holds no tag of its own, so that one that is not closed is not looked for again from each that follows.
_ARGUMENT = r"\s*<arg_key>(?P<key>(?:(?!</?arg_key>).)*+)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"
_ARGUMENT_TAGS = ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
GLM45 = Dialect(
    name="glm45",
    source=template("GLM-4.6.jinja", "afefa651447358ae477f31a0ea1b97adff04c64f")
    + "; "
    + SGLANG
    + "glm4_moe_detector.py",
    open=("<tool_call>",),
    close="</tool_call>",
    stray=_ARGUMENT_TAGS,
    read=reader(r"(?P<name>[^<\n]+)(?:\n|(?=<arg_key>)|\Z)", "", _ARGUMENT, guess=True),
    write=writer(
        "<tool_call>{key}\n",
        "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n",
        "</tool_call>",
        (*_TAGS, *_ARGUMENT_TAGS),
    ),
)

POOLSIDE = replace(GLM45, name="poolside_v1", source=VLLM + "tool_parsers/poolside_v1_tool_parser.py")

_IFM_PAIR = (
    r"\s*<ifm\|arg_key>(?P<key>(?:(?!</?ifm\|arg_key>).)*+)</ifm\|arg_key>\s*(?:<ifm\|arg_type>[^<]*</ifm\|arg_type>\s*)?"
    r"<ifm\|arg_value>(?P<value>.*?)</ifm\|arg_value>"
)
_IFM = ("<ifm|tool_calls>", "</ifm|tool_calls>", "<ifm|tool_call>", "</ifm|tool_call>")
_IFM_ARGUMENT = tuple(f"<{end}ifm|arg_{part}>" for part in ("key", "type", "value") for end in ("", "/"))
K2_HORIZON = Dialect(
    name="k2_horizon",
    source=VLLM + "tool_parsers/k2_horizon_tool_parser.py (its form `xml`, types said or not)",
    frame=_IFM[:2],
    open=_IFM[2:3],
    close=_IFM[3],
    stray=_IFM_ARGUMENT,
    thinks=("<ifm|think>", "</ifm|think>"),
    read=reader(r"\s*(?P<name>[^<\s]+)\s*(?=<ifm\|arg_key>|\Z)", "", _IFM_PAIR),
    write=writer(
        "<ifm|tool_call>{key}\n",
        "<ifm|arg_key>{key}</ifm|arg_key>\n<ifm|arg_value>{value}</ifm|arg_value>\n",
        "</ifm|tool_call>",
        (*_IFM, *_IFM_ARGUMENT),
        around=("<ifm|tool_calls>\n", "\n</ifm|tool_calls>"),
        named=r"[^<\s]+",
    ),
)

MINIMAX_M2 = Dialect(
    name="minimax_m2",
    source=template("unsloth-MiniMax-M2.jinja", "a21f05affbf67c90f2ac574f1bdd7197ccbe2369")
    + "; "
    + SGLANG
    + "minimax_m2.py",
    frame=("<minimax:tool_call>", "</minimax:tool_call>"),
    open=('<invoke name="',),
    close="</invoke>",
    read=reader(r'(?P<name>[^">\n]+)">', "", r'\s*<parameter name="(?P<key>[^">]*)">(?P<value>.*?)</parameter>'),
    write=writer(
        '<invoke name="{key}">\n',
        '<parameter name="{key}">{value}</parameter>\n',
        "</invoke>",
        ("minimax:tool_call>", "<invoke", "</invoke>", "<parameter", "</parameter>", '">'),
        around=("<minimax:tool_call>\n", "\n</minimax:tool_call>"),
    ),
)

DOTS = Dialect(
    name="dots",
    source=f"{VLLM}tool_parsers/dots_tool_parser.py; {SGLANG}dots_detector.py",
    frame=("<dots_function_call>", "</dots_function_call>"),
    open=('<invoke name="',),
    close="</invoke>",
    read=reader(
        r'(?P<name>[^">\n]+)">',
        "",
        r'\s*<parameter name="(?P<key>[^">]*)">(?P<value>.*?)</parameter>',
        plain=str.strip,
    ),
    write=writer(
        '<invoke name="{key}">\n',
        '<parameter name="{key}">{value}</parameter>\n',
        "</invoke>",
        ("dots_function_call>", "<invoke", "</invoke>", "<parameter", "</parameter>"),
        around=("<dots_function_call>\n", "\n</dots_function_call>"),
        named=r'[^">\n]+',
        plain=str.strip,
    ),
)

_STEP = ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>")
STEP3 = Dialect(
    name="step3",
    source=f"{VLLM}tool_parsers/step3_tool_parser.py; {SGLANG}step3_detector.py",
    frame=_STEP[:2],
    open=_STEP[2:3],
    close=_STEP[3],
    stray=("<｜tool_sep｜>",),
    read=reader(
        r'\s*function\s*<｜tool_sep｜>\s*<steptml:invoke name="(?P<name>[^">]+)">',
        "</steptml:invoke>",
        r'\s*<steptml:parameter name="(?P<key>[^">]+)">(?P<value>[^<]*)</steptml:parameter>',
        plain=str.strip,
    ),
    write=writer(
        '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{key}">',
        '<steptml:parameter name="{key}">{value}</steptml:parameter>',
        "</steptml:invoke><｜tool_call_end｜>",
        ("<",),
        around=("<｜tool_calls_begin｜>\n", "\n<｜tool_calls_end｜>"),
        named=r'[^">]+',
        plain=str.strip,
    ),
)


def _character_data(value: str) -> str:
    """Decode the content of an XML element to text."""
    if value.startswith("<![CDATA[") and value.endswith("]]>"):
        return value[len("<![CDATA[") : -len("]]>")]
    return unescape(value, {"&quot;": '"', "&apos;": "'"})


MINICPM5 = Dialect(
    name="minicpm5",
    source=f"{VLLM}tool_parsers/minicpm5xml_tool_parser.py; {SGLANG}minicpm5_detector.py",
    open=('<function name="',),
    close="</function>",
    read=reader(
        r'(?P<name>[^">]+)">',
        "",
        r'\s*<param name="(?P<key>[^">]+)">(?P<value>(?:<!\[CDATA\[.*?\]\]>)|.*?)</param>',
        guess=True,
        plain=_character_data,
    ),
    write=writer(
        '<function name="{key}">',
        '<param name="{key}">{value}</param>',
        "</function>",
        ("<", "&"),
        named=r'[^">]+',
    ),
)
