"""BFCL's rules for Python calls once more, from their description in prose, and calls on which to hold both against
each other: `differential` compares `scoring.tools.compat` with these rules on seeded mutations.

The rules here are lists of faults in the order in which they count; the first one decides. They were written before
`compat` and share no line with it. What the description leaves open was settled by the published checker's verdicts.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.scoring.tools.compat import check, is_calls

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


# Calls to try the rules on. ------------------------------------------------------------------------------------------

WORDS = ("a", "New York", "new-york", "it's", 'say "x"', "3.14", "x**2", "Ünïcode", "A", "", "true", "5", "a,b", "İ")
NUMBERS = (0, 1, -5, 10, 300000, 2, 40)
FLOATS = (0.0, 1.0, 0.1, -2.5, 30.45, 1e-9)
CATEGORIES = ("simple_python", "multiple", "parallel", "parallel_multiple")
LANGUAGES = ("python", "java", "javascript")
TYPES = {
    "python": ("string", "integer", "float", "boolean", "array", "tuple", "dict", "any"),
    "java": ("String", "integer", "long", "float", "double", "boolean", "char", "Array", "ArrayList", "HashMap", "any"),
    "javascript": ("String", "integer", "float", "Bigint", "Boolean", "array", "dict", "any"),
}
COLLECTIONS = ("array", "tuple", "Array", "ArrayList")
_PYTHON_OF = {"byte": "integer", "short": "integer", "long": "integer", "Bigint": "integer", "double": "float"}


def read_rows(folder: Path) -> list[Row]:
    """BFCL's own rows: `<category>.jsonl` beside `possible_answer/<category>.jsonl`."""
    rows = []
    for file in sorted((folder / "possible_answer").glob("*.jsonl")):
        truths = {row["id"]: row["ground_truth"] for row in map(json.loads, file.open(encoding="utf-8"))}
        for row in map(json.loads, (folder / file.name).open(encoding="utf-8")):
            found = {"category": file.stem, "language": "python", "functions": row["function"]}
            rows.append(found | {"answers": truths[row["id"]]})
    return rows


def made_row(rng: random.Random, language: str = "python") -> Row:
    """Functions and accepted answers of every documented type, of the shapes BFCL has and some it has not."""
    category = rng.choice(CATEGORIES) if language == "python" else f"simple_{language}"
    functions = [_made_function(rng, language, f"{rng.choice(('f', 'g.h', 'F', 'a_b'))}{n}") for n in range(3)]
    count = rng.randint(1, 3) if "parallel" in category else 1
    answers = []
    for _ in range(count):
        function = functions[0] if category in ("parallel",) or "simple" in category else rng.choice(functions)
        described = function["parameters"]["properties"]
        accepted = {
            name: [_made_value(rng, doc, accepted=True) for _ in range(rng.randint(1, 2))]
            for name, doc in described.items()
        }
        for name, options in accepted.items():
            if name not in function["parameters"]["required"] and rng.random() < 0.8:
                options.insert(rng.randint(0, len(options)), "")
            elif rng.random() < 0.05:
                options.insert(0, rng.choice(("some_variable", None, True, 7)))
        answers.append({function["name"]: accepted})
    if category == "simple_python" or language != "python":
        functions = functions[:1]
    return {"category": category, "language": language, "functions": functions, "answers": answers}


def _made_function(rng: random.Random, language: str, name: str) -> Row:
    properties = {}
    for parameter in ("a", "b_c", "D")[: rng.randint(1, 3)]:
        properties[parameter] = {"type": rng.choice(TYPES[language])}
        if properties[parameter]["type"] in COLLECTIONS:
            properties[parameter]["items"] = {"type": rng.choice(TYPES[language])}
    required = [parameter for parameter in properties if rng.random() < 0.6]
    return {"name": name, "parameters": {"type": "dict", "properties": properties, "required": required}}


def _made_value(rng: random.Random, doc: Row, accepted: bool = False) -> Any:
    documented: str = _PYTHON_OF.get(doc["type"]) or doc["type"]
    if documented in COLLECTIONS:
        inner = doc.get("items", {"type": "integer"})
        return [_made_value(rng, inner, accepted) for _ in range(rng.randint(0, 3))]
    match documented.lower():
        case "integer":
            return rng.choice(NUMBERS)
        case "float":
            return rng.choice(FLOATS)
        case "boolean":
            return rng.random() < 0.5
        case "dict" | "hashmap":
            inner = [rng.choice((*WORDS, *NUMBERS, *FLOATS, True, ["x", 1])) for _ in range(rng.randint(0, 3))]
            options = [[value] + ([""] if rng.random() < 0.3 else []) for value in inner]
            return dict(zip(("k", "l m", "N"), options if accepted else inner, strict=False))
    return rng.choice(WORDS)


def right_output(rng: random.Random, row: Row) -> list[Row]:
    """Calls that take one of the accepted values each (Java and JavaScript: as source text)."""
    calls = []
    for answer in copy.deepcopy(row["answers"]):
        ((name, accepted),) = answer.items()
        documented = next((f for f in row["functions"] if f["name"] == name), row["functions"][0])
        described = documented["parameters"]["properties"]
        given = {}
        for parameter, options in accepted.items():
            if "" in options and rng.random() < 0.5:
                continue
            doc = described.get(parameter, {"type": "string"})
            given[parameter] = _plain(rng.choice(options or [""]))
            if row["language"] != "python":
                given[parameter] = source(row["language"], given[parameter], doc)
        calls.append({name: given})
    if "parallel" in row["category"] and rng.random() < 0.3:
        rng.shuffle(calls)
    return calls


def _plain(value: Any) -> Any:
    """An accepted value as a call would hold it: the accepted values inside dicts are lists there."""
    if kind(value) == "dict":
        return {key: next(iter(options), "") for key, options in value.items() if kind(options) == "list"}
    return [_plain(item) for item in value] if kind(value) == "list" else value


def source(language: str, value: Any, doc: Row) -> str:
    """`value` as Java or JavaScript source text of the documented type."""
    documented, inner = doc["type"], doc.get("items", {"type": "any"})
    if kind(value) == "bool":
        return str(value).lower()
    if kind(value) == "list":
        plain = {"type": "any"} if documented not in COLLECTIONS else inner
        items = [_quoted(source(language, item, plain)) if kind(item) == "str" else source(language, item, plain)
                 for item in value]  # fmt: skip
        text = ", ".join(items)
        if language == "javascript":
            return f"[{text}]"
        adds = " ".join(f"add({item});" for item in items)
        lists = (f"new ArrayList<>(Arrays.asList({text}))", f"new ArrayList<Integer>() {{{{ {adds} }}}}")
        return f"new int[]{{{text}}}" if documented == "Array" else lists[len(value) % 2]
    if kind(value) == "dict":
        entries = {key: _quoted(item) if kind(item) == "str" else source(language, item, {"type": "any"})
                   for key, item in value.items()}  # fmt: skip
        if language == "javascript":
            return "{" + ", ".join(f"{_quoted(key)}: {item}" for key, item in entries.items()) + "}"
        puts = " ".join(f'put("{key}", {item});' for key, item in entries.items())
        return f"new HashMap<String, Object>() {{{{ {puts} }}}}"
    suffix = {"long": "L", "float": "f" if language == "java" else "", "Bigint": "n"}.get(documented, "")
    return f"{value}{suffix}" if kind(value) in ("int", "float") else str(value)


def _quoted(text: str) -> str:
    return f'"{text}"'


def mutated(rng: random.Random, row: Row, output: Any) -> tuple[Row, Any]:
    """The row and the output with 0 to 3 changes a model, or a data set, could make."""
    row, output = copy.deepcopy(row), copy.deepcopy(output)
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 2, 3))):
        if not output or not is_calls(output):
            break
        chance = rng.random()
        if chance < 0.06:
            output = _reshaped(rng, output)
        elif chance < 0.12:
            _mutate_calls(rng, row, output)
        elif chance < 0.2:
            _mutate_row(rng, row)
        else:
            call = rng.choice(output)
            if given := next(iter(call.values()), None):
                _mutate_arguments(rng, row, given)
    return row, output


def _reshaped(rng: random.Random, output: list[Row]) -> Any:
    shapes: list[Any] = [None, "no call", [], [{}], {}, [[]], [{"f": 1}], [{"f": {}}], output[0], [*output, "text"]]
    return rng.choice([*shapes, [{**output[0], "zz": {}}], [{min(output[0], default="f"): "x=1"}]])


def _mutate_calls(rng: random.Random, row: Row, output: list[Row]) -> None:
    place = rng.randrange(len(output))
    ((name, given),) = output[place].items()
    match rng.randrange(5):
        case 0:
            del output[place]
        case 1:
            output.insert(place, copy.deepcopy(rng.choice(output)))
        case 2:
            rng.shuffle(output)
        case 3:
            other = rng.choice([name.upper(), name.replace(".", "_"), name + " ", rng.choice(row["functions"])["name"]])
            output[place] = {other: given}
        case 4:
            given[rng.choice(("extra", "A", ""))] = 1


def _mutate_row(rng: random.Random, row: Row) -> None:
    function = rng.choice(row["functions"])
    properties = function["parameters"]["properties"]
    options = rng.choice(list(rng.choice(list(rng.choice(row["answers"]).values())).values()) or [[]])
    if not properties:
        return
    doc = properties[rng.choice(list(properties))]
    match rng.randrange(7):
        case 0:
            doc["type"] = rng.choice(("number", "object", "Any", *TYPES[row["language"]]))
            doc.setdefault("items", {"type": rng.choice(TYPES[row["language"]])})
        case 1 if "items" in doc:
            doc["items"]["type"] = rng.choice(("number", *TYPES[row["language"]]))
        case 2:
            options.insert(rng.randint(0, len(options)), "")
        case 3:
            options.insert(rng.randint(0, len(options)), rng.choice((None, "a variable", 5, 1.0, True, [], ["a"], {})))
        case 4:
            options.clear()
        case 5 if options:
            options.append(_changed(rng, rng.choice(options)))
        case 6:
            function["parameters"]["required"] = sorted(
                {*function["parameters"]["required"], rng.choice([*properties])}
            )


def _mutate_arguments(rng: random.Random, row: Row, given: Row) -> None:
    name = rng.choice(list(given))
    chance = rng.random()
    if chance < 0.08:
        del given[name]
    elif chance < 0.12:
        given[name.upper()] = given.pop(name)
    elif row["language"] != "python" and rng.random() < 0.85:
        given[name] = _respelled(rng, str(given[name]))
    else:
        given[name] = _changed(rng, given[name])


# fmt: off
ANYTHING = (
    None, True, False, 0, 1, 5, -1, 1.0, 0.5, "", "5", "true", "a", [], [""], ["a"], [1], [[]], [{}], {}, {"k": 1},
    {"k": [1]}, (1, 2), [None], [1.0, 2], ["a", 1], float("inf"), 10**30,
)
INSERTED = (
    " ", ",", ".", "/", "-", "_", "*", "^", "'", '"', "\t", "\n", "\u00a0", "(", ")", "[", "]", "{", "}", ":", ";", "x",
    "5", "L", "f", "n", "e5", ", ", '", "', "put(", "add(", "\u0665", "\\", "=",
)
# fmt: on


def _changed(rng: random.Random, value: Any) -> Any:
    """Another value, most often one close to `value`."""
    if rng.random() < 0.25:
        return copy.deepcopy(rng.choice(ANYTHING))
    match value:
        case bool():
            return rng.choice((not value, int(value), str(value), "true"))
        case int():
            return rng.choice((value + 1, float(value), str(value), value == 1, -value, [value]))
        case float():
            return rng.choice((value + 1e-9, int(value) if abs(value) < 1e9 else 0, str(value), -value, value * 10))
        case str():
            return _respelled(rng, value)
        case list() | tuple() if value:
            items, place = list(value), rng.randrange(len(value))
            changes = (items[::-1], items[:-1], [*items, items[0]], tuple(items), items[place], [items], str(items))
            items = list(value)
            items[place] = _changed(rng, items[place])
            return rng.choice((*changes, items, items, items))
        case dict() if value:
            key = rng.choice(list(value))
            left = {other: item for other, item in value.items() if other != key}
            changed = {**value, key: _changed(rng, value[key])}
            return rng.choice((left, changed, changed, {**value, "zz": 1}, {**left, key.upper(): value[key]}, [value]))
    return copy.deepcopy(rng.choice(ANYTHING))


def _respelled(rng: random.Random, text: str) -> str:
    place = rng.randint(0, len(text))
    inserted = rng.choice(INSERTED)
    changes = (text[:place] + inserted + text[place:],) * 4
    changes += (text.upper(), text.lower(), text[:place] + text[place + 1 :], text.replace("'", '"'), text.swapcase())
    return rng.choice((*changes, text.strip("\"'"), f'"{text}"', f"[{text}]", text + text, text.replace(" ", "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    calls: int
    same: int
    differences: tuple[str, ...]  # the first few, one line each
    words: dict[str, int]  # how often each error type came up; "" for right
    checks_per_second: float  # of compat, on this core


def differential(calls: int, seed: int, rows: list[Row] | None = None) -> Agreement:
    """`calls` seeded mutations of `rows` (made ones by default), judged by compat and by the rules above."""
    rng = random.Random(seed)
    made = rows or [made_row(rng) for _ in range(1000)]
    same, differences, words, seconds = 0, [], {}, 0.0
    for _ in range(calls):
        chosen = rng.choice(made)
        row, output = mutated(rng, chosen, right_output(rng, chosen))
        if rng.random() < 0.05:
            row["category"] = rng.choice(("irrelevance", "live_relevance", *CATEGORIES))
        start = time.process_time()
        found = check(row["category"], row["language"], row["functions"], output, row["answers"])
        seconds += time.process_time() - start
        valid, word = verdict(row["category"], row["functions"], output, row["answers"])
        words[word] = words.get(word, 0) + 1
        raised = found.valid is None and found.error_type.startswith("reference_raises:")
        if (found.valid, "reference_raises" if raised else found.error_type) == (valid, word):
            same += 1
        elif len(differences) < 5:
            differences.append(f"compat {found}, rules {(valid, word)}: {row} {output!r}"[:2000])
    return Agreement(
        calls=calls,
        same=same,
        differences=tuple(differences),
        words=words,
        checks_per_second=calls / max(seconds, 1e-9),
    )


def simple_checks_per_second(seed: int, rounds: int = 20) -> tuple[float, float]:
    """Checks of one decoded call against one expected call: (right ones, mutated ones), best of `rounds`, one core."""
    rng = random.Random(seed)
    rows = [row for row in (made_row(rng) for _ in range(1000)) if "simple" in row["category"]][:200]
    right = [(row, right_output(rng, row)) for row in rows]
    best = []
    for pairs in (right, [mutated(rng, row, output) for row, output in right]):
        seconds = []
        for _ in range(rounds):
            start = time.process_time()
            for row, output in pairs:
                check("simple_python", "python", row["functions"], output, row["answers"])
            seconds.append(time.process_time() - start)
        best.append(len(pairs) / min(seconds))
    return best[0], best[1]
