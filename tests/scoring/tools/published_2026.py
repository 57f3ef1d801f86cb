"""What models of 2025 and 2026 write, after the template or parser that each dialect names: see `test_dialects`.

The arguments are those of `test_dialects.ARGUMENTS`.
"""

from __future__ import annotations

JSON = r'{"city": "São \"Paulo\"", "days": 3, "metric": true, "near": [1.5, {"k": null}]}'
CALL = f'{{"name": "get_weather", "arguments": {JSON}}}'
PING = '{"name": "ping", "arguments": {}}'
PYTHON = "get_weather(city='São \"Paulo\"', days=3, metric=true, near=[1.5, {'k': null}])"
TAGS = (
    '<parameter name="city">São "Paulo"</parameter>\n<parameter name="days">3</parameter>\n'
    '<parameter name="metric">true</parameter>\n<parameter name="near">[1.5, {"k": null}]</parameter>\n'
)


def dsml(frame: str, space: str = "") -> tuple[str, str]:
    tag, end = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    given = [("city", "true", 'São "Paulo"'), ("days", "false", "3"), ("metric", "false", "true")]
    given.append(("near", "false", '[1.5, {"k": null}]'))
    pairs = "".join(
        f'{tag}parameter name="{key}" string="{text}">{value}{end}parameter>\n' for key, text, value in given
    )
    call = f'{tag}invoke name="get_weather">\n{pairs}{end}invoke>\n'
    ping = f'{tag}invoke name="ping">\n\n{end}invoke>\n'
    return (
        f"{tag}{frame}>\n{call}{end}{frame}>",
        f"<think>hm</think>Let me see.\n\n{tag}{frame}>\n{call}{ping}{end}{frame}><｜end▁of▁sentence｜>",
    )


def seed() -> tuple[str, str]:
    call = (
        '<seed:tool_call>\n<function=get_weather>\n<parameter=city>São "Paulo"</parameter>\n<parameter=days>3'
        '</parameter>\n<parameter=metric>true</parameter>\n<parameter=near>[1.5, {"k": null}]</parameter>\n'
        "</function>\n</seed:tool_call>"
    )
    ping = "<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>"
    return call, f"<seed:think>hm</seed:think>\nSure.\n{call}\n{ping}<seed:eos>"


def kimi_k3() -> tuple[str, str]:
    def argument(key: str, kind: str, value: str) -> str:
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'

    given = argument("city", "string", 'São "Paulo"') + argument("days", "number", "3")
    given += argument("metric", "boolean", "true") + argument("near", "array", '[1.5,{"k":null}]')
    call = f'<|open|>call tool="get_weather" index="1"<|sep|>{given}<|close|>call<|sep|>'
    ping = '<|open|>call tool="ping" index="2"<|sep|><|close|>call<|sep|>'
    said = "hm<|close|>think<|sep|><|open|>response<|sep|>Sure.<|close|>response<|sep|>"
    return (
        f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>",
        f"{said}<|open|>tools<|sep|>{call}{ping}<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>",
    )


def minimax_m3() -> tuple[str, str]:
    mark = "]<]minimax[>["

    def element(name: str, inner: str) -> str:
        return f"{mark}<{name}>{inner}{mark}</{name}>"

    given = element("city", 'São "Paulo"') + element("days", "3") + element("metric", "true")
    given += element("near", '[1.5, {"k": null}]')
    call = f'{mark}<invoke name="get_weather">{given}{mark}</invoke>'
    ping = f'{mark}<invoke name="ping">{mark}</invoke>'
    return (
        f"{mark}<tool_call>\n{call}\n{mark}</tool_call>",
        f"<mm:think>hm</mm:think>Sure.{mark}<tool_call>\n{call}\n{ping}\n{mark}</tool_call>",
    )


def step3() -> tuple[str, str]:
    tags = TAGS.replace("parameter", "steptml:parameter")
    call = (
        f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="get_weather">\n{tags}</steptml:invoke>'
        "<｜tool_call_end｜>"
    )
    ping = '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="ping"></steptml:invoke><｜tool_call_end｜>'
    return (
        f"<｜tool_calls_begin｜>\n{call}\n<｜tool_calls_end｜>",
        f"Sure.<｜tool_calls_begin｜>\n{call}\n{ping}\n<｜tool_calls_end｜>",
    )


def plamo3() -> tuple[str, str]:
    def one(name: str, arguments: str) -> str:
        return (
            f"<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
            f"<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{arguments}"
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
        )

    begin, end = "<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_requests:plamo|>"
    call = one("get_weather", JSON)
    thought = "<|plamo:begin_think:plamo|>hm<|plamo:end_think:plamo|>"
    return f"{begin}{call}{end}", f"{thought}{begin}{call}{one('ping', '{}')}{end}<|plamo:tag|>"


def hy_v4(part: str) -> str:
    """A call, with the part that a checkpoint's tags may have."""

    def between(word: str, text: str) -> str:
        return f"<{word}{part}>{text}</{word}{part}>"

    given = {"city": 'São "Paulo"', "days": "3", "metric": "true", "near": '[1.5, {"k": null}]'}
    pairs = "".join(between("arg_key", key) + between("arg_value", value) + "\n" for key, value in given.items())
    return between("tool_call", "get_weather" + pairs) + "\n"


def k2_horizon(typed: bool) -> str:
    given = (("city", "string", 'São "Paulo"'), ("days", "integer", "3"), ("metric", "boolean", "true"))
    pairs = "".join(
        f"<ifm|arg_key>{key}</ifm|arg_key>{f'<ifm|arg_type>{kind}</ifm|arg_type>' if typed else ''}"
        f"<ifm|arg_value>{value}</ifm|arg_value>"
        for key, kind, value in (*given, ("near", "array", '[1.5, {"k": null}]'))
    )
    return f"<ifm|tool_call>get_weather\n{pairs}</ifm|tool_call>"


MIMO = (
    '<tool_call>\n<function=get_weather>\n<parameter=city>São "Paulo"</parameter>\n<parameter=days>3</parameter>\n'
    '<parameter=metric>true</parameter>\n<parameter=near>[1.5, {"k": null}]</parameter>\n</function>\n</tool_call>'
)
GEMMA = '<|tool_call>call:get_weather{city:<|"|>São "Paulo"<|"|>,days:3,metric:true,near:[1.5,{k:null}]}<tool_call|>'
MINICPM = (
    '<function name="get_weather"><param name="city">São &quot;Paulo&quot;</param><param name="days">3</param>'
    '<param name="metric">true</param><param name="near"><![CDATA[[1.5, {"k": null}]]]></param></function>'
)
LONGCAT = f"<longcat_tool_call>\n{CALL}\n</longcat_tool_call>"
INKLING = f'<|content_invoke_tool_json|>{{"name":"get_weather","args":{JSON}}}<|end_message|>'

# As `test_dialects.PUBLISHED`: name → (part of its source, an answer with one call, one with that call and ping)
NEWER: dict[str, tuple[str, str, str]] = {
    "deepseek_v32": ("DeepSeek-V3.2.jinja", *dsml("function_calls")),
    "deepseek_v4": ("deepseek_v4", *dsml("tool_calls")),
    "deepseek_v41": ("deepseek_v41", *dsml("calls", " ")),
    "seed_oss": ("ByteDance-Seed-OSS.jinja", *seed()),
    "kimi_k3": ("Kimi-K3.jinja", *kimi_k3()),
    "minimax_m3": ("minimax_m3", *minimax_m3()),
    "gemma4": (
        "gemma4.jinja",
        GEMMA,
        f"<|channel>thought\nhm<channel|>Sure.{GEMMA}<|tool_call>call:ping{{}}<tool_call|><turn|>",
    ),
    "lfm2": (
        "LFM2.5",
        f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>",
        f"<|tool_call_start|>[{PYTHON}, ping()]<|tool_call_end|>Checking.<|im_end|>",
    ),
    "olmo3": (
        "olmo3",
        f"<function_calls>{PYTHON}</function_calls>",
        f"Sure.\n<function_calls>\n{PYTHON}\nping()\n</function_calls>",
    ),
    "longcat": (
        "longcat",
        LONGCAT,
        f"<longcat_think>hm</longcat_think>{LONGCAT}\n<longcat_tool_call>\n{PING}\n</longcat_tool_call>",
    ),
    "dots": (
        "dots",
        f'<dots_function_call>\n<invoke name="get_weather">\n{TAGS}</invoke>\n</dots_function_call>',
        f'Sure.<dots_function_call>\n<invoke name="get_weather">\n{TAGS}</invoke>\n<invoke name="ping">\n</invoke>\n'
        "</dots_function_call>",
    ),
    "step3": ("step3", *step3()),
    "minicpm5": ("minicpm5", MINICPM, f'<think>hm</think>{MINICPM}<function name="ping"></function><|im_end|>'),
    "apertus": (
        "apertus",
        f'<|tools_prefix|>[{{"get_weather": {JSON}}}]<|tools_suffix|>',
        "<|inner_prefix|>hm<|inner_suffix|>Sure.<|tools_prefix|>"
        f'[{{"get_weather": {JSON}}}, {{"ping": {{}}}}]<|tools_suffix|><|assistant_end|>',
    ),
    "gigachat3": (
        "GigaChat3",
        f"function call<|role_sep|>\n{CALL}",
        f"Sure.<|message_sep|>\n\nfunction call<|role_sep|>\n{CALL}<|message_sep|>\n\n<|function_call|>{PING}",
    ),
    "inkling": (
        "inkling",
        INKLING,
        f"<|content_thinking|>hm<|end_message|><|message_model|><|content_text|>Sure.<|end_message|><|message_model|>"
        f'{INKLING}<|message_model|><|content_invoke_tool_json|>{{"name":"ping","args":{{}}}}<|end_message|>',
    ),
    "plamo3": ("plamo3", *plamo3()),
    "hy_v4": (
        "hy_v4",
        f"<tool_calls>{hy_v4('')}</tool_calls>",
        f"<think:6124c78e>hm, <tool_calls></think:6124c78e>As <tool_call> is:<tool_calls:6124c78e>{hy_v4(':6124c78e')}"
        "<tool_call:6124c78e>ping</tool_call:6124c78e></tool_calls:6124c78e>",
    ),
    "k2_horizon": (
        "k2_horizon",
        f"<ifm|tool_calls>{k2_horizon(typed=False)}</ifm|tool_calls>",
        f"<ifm|think>hm</ifm|think>Sure.<ifm|tool_calls>\n{k2_horizon(typed=True)}\n<ifm|tool_call>ping</ifm|tool_call>\n"
        "</ifm|tool_calls>",
    ),
    "mimo": ("mimo", MIMO, f"<think>hm</think>{MIMO}\n<tool_call>\n<function=ping>\n</function>\n</tool_call>"),
}
