"""BFCL's rules for Python calls once more, from their description in prose.

The rules here are lists of faults in the order in which they count; the first one decides. They were written before
`scoring.tools.compat` and share no line with it. What the description leaves open was settled by the published
checker's verdicts. `bfcl_calls` makes calls to try them on, `bfcl_agreement` holds `compat` against them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Row = dict[str, Any]  # category, language, functions, answers (BFCL's possible answers)
KINDS = {
    "string": "str", "any": "str", "integer": "int", "float": "float", "boolean": "bool",
    "array": "list", "tuple": "list", "dict": "dict",
}  # fmt: skip
SIMPLE, PARALLEL = "simple_function_checker:", "parallel_function_checker_no_order:"


def kind(value: Any) -> str:
    return type(value).__name__


def folded(value: Any) -> Any:
    """Case, blanks and , . / - _ * ^ do not count in a text, and both quotes are one."""
    if kind(value) != "str":
        return value
    return "".join('"' if letter == "'" else letter for letter in value.lower() if letter not in " ,./-_*^")


def verdict(category: str, functions: list[Row], output: Any, answers: list[Row]) -> tuple[bool | None, str]:
    """(right or wrong, error word); (None, "reference_raises") where the reference stops with an exception."""
    called = kind(output) == "list" and all(
        kind(item) == "dict" and [kind(given) for given in item.values()] == ["dict"] for item in output
    )
    if "irrelevance" in category:
        return (False, "irrelevance_error:decoder_success") if called and output else (True, "")
    if "relevance" in category:
        return (True, "") if called and output else (False, "relevance_error:decoder_failed")
    if not called:
        return False, "ast_decoder:" + ("decoder_failed" if output is None else "decoder_wrong_output_format")
    try:
        word = next(_faults(category, functions, output, answers), "")
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError):
        return None, "reference_raises"
    return not word, word


def _faults(category: str, functions: list[Row], output: list[Row], answers: list[Row]) -> Iterator[str]:
    documented = {function["name"]: function for function in reversed(functions)}
    if "parallel" in category:
        if len(output) != len(answers):
            yield PARALLEL + "wrong_count"
        free = list(output)
        for answer in answers:
            fitting = (call for call in free if not any(_call_faults(documented[min(answer)], call, answer)))
            taken = next(fitting, None)
            if taken is None:
                yield PARALLEL + "cannot_find_match"
            free = [call for call in free if call is not taken]
    elif "multiple" in category:
        if len(output) != len(answers):
            yield "multiple_function_checker:wrong_count"
        yield from _call_faults(documented[min(answers[0])], output[0], answers[0])
    else:
        if len(output) != 1:
            yield SIMPLE + "wrong_count"
        yield from _call_faults(functions[0], output[0], answers[0])


def _call_faults(function: Row, call: Row, answer: Row) -> Iterator[str]:
    ((name, given),) = call.items()
    (accepted,) = answer.values()
    described = function["parameters"]
    if name != function["name"]:
        yield SIMPLE + "wrong_func_name"
    if set(described["required"]) - set(given):
        yield SIMPLE + "missing_required"
    for parameter, value in given.items():
        if parameter not in set(described["properties"]) & set(accepted):
            yield SIMPLE + "unexpected_param"
        yield from _value_faults(described["properties"][parameter], value, accepted[parameter])
    if any("" not in options for parameter, options in accepted.items() if parameter not in given):
        yield SIMPLE + "missing_optional"


def _spoken(options: list[Any]) -> str:
    """The type the accepted values speak of: the first one's that is not the mark "may be left out"."""
    return next((kind(option) for option in options if option != ""), "")


def _value_faults(description: Row, value: Any, options: list[Any]) -> Iterator[str]:
    wanted = KINDS[description["type"]]
    inner = KINDS[description["items"]["type"]] if description["type"] in ("array", "tuple") else ""
    if description["type"] == "tuple" and kind(value) == "tuple":
        value = list(value)
    if description["type"] == "float" and kind(value) == "int":
        value = float(value)
    spoken, as_documented = _spoken(options), kind(value) == wanted
    if as_documented and inner:
        plain = [option for option in options if kind(option) == "list"]
        fits = (all(kind(item) in (inner, _spoken(option)) for item in value) for option in plain)
        if len(plain) == len(options) and not any(fits):
            yield "type_error:" + ("nested" if spoken == wanted else "simple")
    elif not as_documented and kind(value) != spoken:
        yield "type_error:simple"
    variable = not as_documented or spoken not in ("", wanted)
    if variable or wanted in ("int", "float", "bool"):
        right, word = value in options, "others"
    elif wanted == "str":
        right, word = folded(value) in [folded(option) for option in options if kind(option) == "str"], "string"
    elif wanted == "dict":
        yield from _dict_faults(value, options)
        return
    elif inner == "dict":
        yield from _dicts_faults(value, options)
        return
    else:
        spelled = [[folded(item) for item in _in_order(option)] for option in options]
        right, word = [folded(item) for item in value] in spelled, "list/tuple"
    if not right:
        yield "value_error:" + word


def _in_order(option: Any) -> Iterable[Any]:
    if kind(option) not in ("list", "str", "tuple") and len(option):
        raise TypeError("no sequence")
    return option


def _dict_faults(value: Row, options: list[Any]) -> Iterator[str]:
    """The last accepted dict's fault, unless one of them fits."""
    word = "dict_checker:unclear"
    for option in options:
        word = word if option == "" else _one_dict(value, option)
        if not word:
            return
    yield word


def _one_dict(value: Row, option: Row) -> str:
    word = ""
    for key, item in value.items():
        if key not in option:
            word = "value_error:dict_key"
        elif folded(item) not in [folded(other) for other in _in_order(option[key])]:
            word = "value_error:dict_value"
        if word:
            break
    absent = any(key not in value and "" not in items for key, items in option.items())
    return "value_error:dict_key" if absent else word


def _dicts_faults(value: list[Row], options: list[list[Row]]) -> Iterator[str]:
    word = "list_dict_checker:unclear"
    for option in options:
        if len(option) != len(value):
            word = "value_error:list_dict_count"
            continue
        word = next(
            (fault for one, other in zip(value, option, strict=True) for fault in _dict_faults(one, [other])), ""
        )
        if not word:
            return
    yield word
