"""Rows of BFCL and made ones, and right calls of them, as values or as source text."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

from tests.verification.references.bfcl_rules import Row, kind

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
