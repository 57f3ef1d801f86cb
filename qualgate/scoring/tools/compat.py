"""Judge tool calls as BFCL (Berkeley function-calling leaderboard, v4) does: its AST rules with every quirk.

Verdict and error type are the reference's own. Re-implemented from its behaviour at
github.com/ShishirPatil/gorilla, commit 6ea57973; what is surprising there is reproduced and marked here:

- parallel calls are matched greedily, so a right answer in another order can be wrong;
- texts are compared without case, blanks and , . / - _ * ^;
- a value of the accepted value's type passes as a "variable", whatever type is documented;
- an empty list passes where "" (may be left out) is accepted, and so does a list of the letters of an accepted text;
- of several accepted dicts the last one names the error.

Where the reference stops with an exception there is no verdict: `valid` is None and the error type
`reference_raises:unknown_type` (a documented type outside its table) or `reference_raises:` and the exception's name.
Java and JavaScript collections beyond our own limit have no verdict either: `too_long`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from qualgate.scoring.outcome import one_line, quote
from qualgate.scoring.tools.compat_java import TooLong, java_value
from qualgate.scoring.tools.compat_javascript import javascript_value
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True)
class Checked:
    """The reference checker's verdict on the calls of one answer."""

    valid: bool | None  # None: the reference itself gives no verdict
    error_type: str = ""
    reason: str = ""


VALID = Checked(True)


@dataclass(frozen=True, slots=True)
class _Language:
    types: dict[str, type]  # by documented type; checked by identity
    nested: frozenset[str]  # documented types whose elements are checked, one level deep
    convert: Callable[[str, str, str | None], Any] | None  # arguments come as source text: to a value
    not_text: str = ""  # the error type of an argument that is no text


_LANGUAGES = {
    "python": _Language(
        {
            "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list,
            "dict": dict, "any": str,
        },
        frozenset({"array", "tuple"}),
        None,
    ),
    "java": _Language(
        {
            "byte": int, "short": int, "integer": int, "float": float, "double": float, "long": int, "boolean": bool,
            "char": str, "Array": list, "ArrayList": list, "Set": set, "HashMap": dict, "Hashtable": dict,
            "Queue": list, "Stack": list, "String": str, "any": str,
        },
        frozenset({"Array", "ArrayList"}),
        java_value,
        "type_error:java",
    ),
    "javascript": _Language(
        {
            "String": str, "integer": int, "float": float, "Bigint": int, "Boolean": bool, "dict": dict,
            "array": list, "any": str,
        },
        frozenset({"array"}),
        javascript_value,
        "type_error:js",
    ),
}  # fmt: skip


class _UnknownType(Exception):
    """A documented type that the reference's table lacks."""


def check(
    category: str,
    language: str,
    functions: list[dict[str, Any]],
    output: object,
    possible_answers: list[dict[str, Any]],
) -> Checked:
    """BFCL's verdict on `output`, the decoded calls `[{name: {parameter: value}}]`; None: nothing could be decoded.

    category: BFCL's, read as there by what it contains: relevance, parallel, multiple, else one call.
    functions: documented as there. possible_answers: `[{name: {parameter: [accepted value, …]}}]`.
    ValueError for another language; never for what a model wrote.
    """
    if language not in _LANGUAGES:
        raise ValueError(f"language {language!r} is none of {', '.join(_LANGUAGES)}")
    if "relevance" in category:
        return _relevance(category, output)
    if output is None:
        return Checked(False, "ast_decoder:decoder_failed", "nothing in the answer can be decoded as calls")
    if not is_calls(output):
        return Checked(False, "ast_decoder:decoder_wrong_output_format", f"{_shown(output)} is no list of calls")
    try:
        return _choose(category, _LANGUAGES[language], functions, output, possible_answers)
    except _UnknownType as error:
        return Checked(None, "reference_raises:unknown_type", f"the reference knows no documented type {error}")
    except TooLong as error:
        return Checked(None, "too_long", str(error))
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        word = type(error).__name__
        return Checked(None, f"reference_raises:{word}", f"the reference stops here with {word}: {_shown(str(error))}")


def is_calls(output: object) -> bool:
    """Return whether `output` is a list of objects with one key, whose value is an object; also if it is empty."""
    return type(output) is list and all(
        type(item) is dict and len(item) == 1 and type(next(iter(item.values()))) is dict for item in output
    )


def _relevance(category: str, output: object) -> Checked:
    called = is_calls(output) and bool(output)
    if called is ("irrelevance" not in category):
        return VALID
    if called:
        return Checked(False, "irrelevance_error:decoder_success", "a call is made where none should be")
    return Checked(False, "relevance_error:decoder_failed", "no call is made where one should be")


def _choose(category: str, language: _Language, functions: Any, output: Any, answers: Any) -> Checked:
    """Check the calls by the rules of a category, as BFCL's ast_checker does: parallel, multiple or simple."""
    if "parallel" in category:
        return _parallel(language, functions, output, answers)
    if "multiple" in category:
        if len(output) != len(answers):
            return _count("multiple_function_checker", output, answers)
        return _call(language, _documented(functions, answers[0]), output[0], answers[0])
    if len(output) != 1:
        return _count("simple_function_checker", output, (1,))
    return _call(language, functions[0], output[0], answers[0])


def _count(checker: str, output: Any, answers: Any) -> Checked:
    return Checked(False, f"{checker}:wrong_count", f"{counted(len(output), 'call')}, expected {len(answers)}")


def _documented(functions: Any, answer: dict[str, Any]) -> Any:
    if type(functions) is not list:
        return functions  # one function alone
    name = list(answer)[0]  # noqa: RUF015 - an empty answer is an IndexError there
    return next((function for function in functions if function["name"] == name), None)


def _parallel(language: _Language, functions: Any, output: Any, answers: Any) -> Checked:
    """Give each expected call the first unmatched call that passes. That is greedy, so the order can matter."""
    if len(output) != len(answers):
        return _count("parallel_function_checker_no_order", output, answers)
    unmatched = list(range(len(output)))
    for number, answer in enumerate(answers):
        function, first = _documented(functions, answer), None
        for index in unmatched:
            checked = _call(language, function, output[index], answer)
            if checked.valid:
                unmatched.remove(index)
                break
            first = first or checked
        else:
            reason = f"no call left is expected call {number + 1}; {first.reason if first else 'none is left'}"
            return Checked(False, "parallel_function_checker_no_order:cannot_find_match", reason)
    return VALID


def _call(language: _Language, function: Any, call: Any, answer: Any) -> Checked:
    """Check one call by BFCL's simple_function_checker; its checks have this order."""
    accepted = list(answer.values())[0]  # noqa: RUF015 - as above
    name, parameters = function["name"], function["parameters"]
    documented, required = parameters["properties"], parameters["required"]
    if name not in call:
        reason = f"called {_shown(next(iter(call)))}, expected {_shown(name)}"
        return Checked(False, "simple_function_checker:wrong_func_name", reason)
    arguments = call[name]
    for parameter in required:
        if parameter not in arguments:
            return Checked(False, "simple_function_checker:missing_required", f"{_shown(parameter)} is missing")
    for parameter, value in arguments.items():
        if parameter not in documented or parameter not in accepted:
            return Checked(False, "simple_function_checker:unexpected_param", f"{_shown(parameter)} is not expected")
        if fault := _fault(language, value, documented[parameter], accepted[parameter]):
            reason = f"{_shown(parameter)} is {_shown(value)}, expected one of {_shown(accepted[parameter])}"
            return Checked(False, fault, reason)
    for parameter, answers in accepted.items():
        if parameter not in arguments and "" not in answers:
            reason = f"{_shown(parameter)} is missing and may not be left out"
            return Checked(False, "simple_function_checker:missing_optional", reason)
    return VALID


def _type(language: _Language, word: Any) -> type:
    try:
        return language.types[word]
    except (KeyError, TypeError):
        raise _UnknownType(_shown(word)) from None


def _fault(language: _Language, value: Any, documented: Any, answers: Any) -> str | None:
    """Return the error type of one argument; None if it passes. answers: the accepted values."""
    word = documented["type"]
    expected, inner = _type(language, word), None
    if language.convert and type(value) is not str:
        return language.not_text
    if word in language.nested:
        inner = _type(language, documented["items"]["type"])
    if language.convert:
        with suppress(UnicodeEncodeError):  # RE2 cannot read a lone surrogate: such a text stays one
            value = language.convert(value, word, documented["items"]["type"] if inner else None)
    elif word == "float" and type(value) is int:
        value = float(value)
    elif word == "tuple" and type(value) is tuple:
        value = list(value)
    answered = _answered(answers)
    if type(value) is not expected:
        if type(value) is not answered:
            return "type_error:simple"
    elif inner and not _elements_fit(value, answers, inner):
        return "type_error:nested" if answered is expected else "type_error:simple"
    elif answered is expected or answered is None:
        if expected is dict:
            return _dict_fault(value, answers)
        if expected is str:
            return None if value in answers or _has_text(value, answers) else "value_error:string"
        if expected is list:
            return _dicts_fault(value, answers) if inner is dict else _list_fault(value, answers)
    # A number, a truth value, or a "variable": of the accepted value's type and not of the documented one.
    return None if value in answers else "value_error:others"


def _answered(answers: Any) -> type | None:
    """Return the type of the first accepted value that is not "" ("" means: may be left out)."""
    for answer in answers:
        if answer != "":
            return type(answer)
    return None


def _elements_fit(value: Any, answers: Any, inner: type) -> bool:
    """Return whether some accepted value is no list, or types all elements of `value` by `inner` or its own type."""
    for answer in answers:
        if type(answer) is not list:
            return True
        element_type = _answered(answer)
        if all(type(item) is inner or (element_type is not None and type(item) is element_type) for item in value):
            return True
    return False


def fold(text: str) -> str:
    """`text` as the reference compares it: without letter case, blanks and signs of ",./-_*^", all quotes alike."""
    for ignored in " ,./-_*^":
        if ignored in text:
            text = text.replace(ignored, "")
    return text.lower().replace("'", '"')


def _folded(items: Any) -> list[Any]:
    """The items with texts folded. By index as in the reference: the letters of a text, none of an empty dict."""
    if type(items) is not list:
        items = [items[index] for index in range(len(items))]
    return [fold(item) if type(item) is str else item for item in items]


def _has_text(value: Any, answers: Any) -> bool:
    value = fold(value)
    return any(value == fold(answer) for answer in answers if type(answer) is str)


def _list_fault(value: Any, answers: Any) -> str | None:
    return None if _folded(value) in [_folded(answer) for answer in answers] else "value_error:list/tuple"


def _dict_fault(value: Any, answers: Any) -> str | None:
    """Return the error type of a dict; None if one accepted dict fits as a whole. Else the last one's fault counts."""
    fault: str | None = "dict_checker:unclear"
    for answer in answers:
        if answer == "":
            continue
        fault = None
        for key, item in value.items():
            if key not in answer:
                fault = "value_error:dict_key"
                break
            if (fold(item) if type(item) is str else item) not in _folded(answer[key]):
                fault = "value_error:dict_value"
                break
        if any(key not in value and "" not in accepted for key, accepted in answer.items()):
            fault = "value_error:dict_key"  # also over a wrong value
        if fault is None:
            return None
    return fault


def _dicts_fault(value: Any, answers: Any) -> str | None:
    """Return the error type of a list of dicts; None if one accepted list fits. Else the last one's fault counts."""
    fault: str | None = "list_dict_checker:unclear"
    for answer in answers:
        if len(value) != len(answer):
            fault = "value_error:list_dict_count"
            continue
        fault = None
        for index, item in enumerate(value):
            if fault := _dict_fault(item, [answer[index]]):
                break
        if fault is None:
            return None
    return fault


def _shown(value: object) -> str:
    try:
        return one_line(quote(value))
    except (RecursionError, ValueError):  # nested without end; a number of more digits than Python writes
        return "a value too large to show"
