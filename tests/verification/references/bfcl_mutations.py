"""Rows and calls with 0 to 3 changes a model, or a data set, could make."""

from __future__ import annotations

import copy
import random
from typing import Any

from qualgate.scoring.tools.compat import is_calls
from tests.verification.references.bfcl_calls import TYPES
from tests.verification.references.bfcl_rules import Row


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


ANYTHING = (
    None, True, False, 0, 1, 5, -1, 1.0, 0.5, "", "5", "true", "a", [], [""], ["a"], [1], [[]], [{}], {}, {"k": 1},
    {"k": [1]}, (1, 2), [None], [1.0, 2], ["a", 1], float("inf"), 10**30,
)  # fmt: skip
INSERTED = (
    " ", ",", ".", "/", "-", "_", "*", "^", "'", '"', "\t", "\n", "\u00a0", "(", ")", "[", "]", "{", "}", ":", ";", "x",
    "5", "L", "f", "n", "e5", ", ", '", "', "put(", "add(", "\u0665", "\\", "=",
)  # fmt: skip


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
