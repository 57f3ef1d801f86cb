"""A short Python function from its specification, in the one canonical form the wording implies, with unit tests.

The function's name and its constants are the values. `tests` are assert lines whose expected results come from
running the reference, which this module wrote itself.
"""

from __future__ import annotations

from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values

NUMBERS = ([3, 8, 120, 7, 45, 64, 999, 12], [], [500, 21, 9, 36])
TEXTS = ("banana", "", "Hello World", "racecar tomato")
LISTS = (["pear", "fig", "banana", "kiwi", "fig"], [], ["a", "tomato", "Fig"])
INPUTS = {"number": (0, 7, 58, 1000), "numbers": NUMBERS, "text": TEXTS, "words": LISTS}

# Steps over `numbers`, composed at random at higher levels: (wording, code); @ is a constant.
KEEP = {
    "keeps those above @": "[n for n in numbers if n > @]",
    "keeps those below @": "[n for n in numbers if n < @]",
    "keeps those divisible by @": "[n for n in numbers if n % @ == 0]",
    "drops those equal to @": "[n for n in numbers if n != @]",
}
CHANGE = {
    "multiplies each by @": "[n * @ for n in numbers]",
    "adds @ to each": "[n + @ for n in numbers]",
    "subtracts @ from each": "[n - @ for n in numbers]",
    "squares each": "[n * n for n in numbers]",
}
RETURN = {
    "returns their sum": "sum(numbers)",
    "returns their count": "len(numbers)",
    "returns the largest or 0": "max(numbers, default=0)",
    "returns them sorted": "sorted(numbers)",
    "returns them reversed": "numbers[::-1]",
}

# argument | wording | body; @1, @2 are constants, @w, @v made-up words. A body line starts after `; `.
SPECS = {
    "code-01": "number | returns @1 times number plus @2 | return @1 * number + @2",
    "code-02": "number | returns number minus @1, but at least @2 | return max(number - @1, @2)",
    "code-03": "number | returns number, but at most @1 | return min(number, @1)",
    "code-04": "number | returns True when number lies between @2 and @1@2 | return @2 <= number <= @1@2",
    "code-05": "number | returns '@w' above @1, else '@v' | if number > @1:;     return '@w'; return '@v'",
    "code-06": "number | returns number modulo @1 plus @2 | return number % @1 + @2",
    "code-07": "number | returns the list of multiples of @1 up to number | return list(range(@1, number + 1, @1))",
    "code-08": "number | returns the sum of the digits plus @1 | return sum(int(d) for d in str(number)) + @1",
    "code-09": "text | returns text with '@w' in front | return '@w' + text",
    "code-10": "text | returns text with '@w' at the end | return text + '@w'",
    "code-11": "text | returns text repeated @1 times | return text * @1",
    "code-12": "text | returns the first @1 letters | return text[:@1]",
    "code-13": "text | returns the last @1 letters in upper case | return text[-@1:].upper()",
    "code-14": "text | returns text with 'a' replaced by '@w' | return text.replace('a', '@w')",
    "code-15": "text | returns True when '@w' occurs in text | return '@w' in text",
    "code-16": "text | returns the words of text joined by '@w' | return '@w'.join(text.split())",
    "code-17": "text | returns how often '@w' occurs in text, plus @1 | return text.count('@w') + @1",
    "code-18": "words | returns the words longer than @1 | return [w for w in words if len(w) > @1]",
    "code-19": "words | returns the words that start with '@w' | return [w for w in words if w.startswith('@w')]",
    "code-20": "words | returns the words with '@w' added | return [w + '@w' for w in words]",
    "code-21": "words | returns the words without '@w' | return [w for w in words if w != '@w']",
    "code-22": "words | returns the total length of the words plus @1 | return sum(len(w) for w in words) + @1",
    "code-23": "words | returns the words joined by ' @w ' | return ' @w '.join(words)",
    "code-24": "words | returns the first word or '@w' | return words[0] if words else '@w'",
    "code-25": "words | counts each word, starting from @1 | "
    "counts = {}; for w in words:;     counts[w] = counts.get(w, @1) + 1; return counts",
    "code-26": "numbers | KEEP and RETURN",
    "code-27": "numbers | CHANGE and RETURN",
    "code-28": "numbers | KEEP, CHANGE and RETURN",
    "code-29": "numbers | CHANGE, KEEP and RETURN",
    "code-30": "numbers | KEEP, CHANGE, KEEP and RETURN",
}  # fmt: skip
TEMPLATES = SPECS


def pipeline(values: Values, level: float, plan: str) -> tuple[str, list[str]]:
    """Wording and body of a chain over `numbers`; every step but the last assigns `numbers` again."""
    wording, body = [], []
    for part in plan.replace(" and ", ", ").split(", "):
        text, code = values.rng.choice(list({"KEEP": KEEP, "CHANGE": CHANGE, "RETURN": RETURN}[part].items()))
        constant = str(constant_of(values, level))
        wording.append(text.replace("@", constant))
        code = code.replace("@", constant)
        body.append(f"return {code}" if part == "RETURN" else f"numbers = {code}")
    return ", ".join(wording[:-1]) + f" and {wording[-1]}", body


def constant_of(values: Values, level: float) -> int:
    """A number of two digits, or the likelier the higher the level of three."""
    return values.integer(2, 99) if values.rng.random() > level else values.integer(100, 999)


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """The level sets how long its constants and its name are."""
    argument, wording, *rest = SPECS[template].split(" | ")
    if rest:
        body = rest[0].split("; ")
        filling = {
            "@1": constant_of(values, level),
            "@2": values.integer(2, 99),
            "@w": values.word(),
            "@v": values.word(),
        }
        for slot, value in filling.items():
            wording = wording.replace(slot, str(value))
            body = [line.replace(slot, str(value)) for line in body]
    else:
        wording, body = pipeline(values, level, wording)
    name = values.word() if level < 0.5 else f"{values.word()}_{values.word()}"
    answer = "\n    ".join([f"def {name}({argument}):", *body])
    return {
        "task": "code",
        "messages": user(f"Write Python {name}({argument}): {wording}."),
        "entry_point": name,
        "tests": tests(answer, name, argument),
        "answer": answer,
        "tags": [f"template:{template}"],
    }


def tests(reference: str, name: str, argument: str) -> str:
    """Assert lines over fixed inputs; what they expect is what the reference returns."""
    scope: dict[str, Any] = {}
    exec(reference, scope)  # our own text, written a few lines above
    return "\n".join(f"assert {name}({value!r}) == {scope[name](value)!r}" for value in INPUTS[argument])
