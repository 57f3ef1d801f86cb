"""Five shapes of cases as people have them, of our own making, and which answers a model cannot give without a word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon",
    "Japan": "Tokyo", "China": "Beijing", "Russia": "Moscow", "Egypt": "Cairo", "Canada": "Ottawa",
    "Greece": "Athens", "Poland": "Warsaw", "Austria": "Vienna", "Norway": "Oslo", "Sweden": "Stockholm",
    "Finland": "Helsinki", "Denmark": "Copenhagen", "Ireland": "Dublin", "Hungary": "Budapest", "Turkey": "Ankara",
    "Kenya": "Nairobi", "India": "New Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Cuba": "Havana",
    "Peru": "Lima", "Chile": "Santiago", "Argentina": "Buenos Aires", "Iraq": "Baghdad", "Iran": "Tehran",
    "South Korea": "Seoul", "Belgium": "Brussels", "Netherlands": "Amsterdam", "Mexico": "Mexico City",
    "Australia": "Canberra", "Ukraine": "Kyiv", "Romania": "Bucharest", "Bulgaria": "Sofia", "Serbia": "Belgrade",
    "Czech Republic": "Prague",
}  # fmt: skip
FACTS = {
    "Who wrote Romeo and Juliet?": "Shakespeare", "What planet is known as the Red Planet?": "Mars",
    "What is the largest ocean?": "Pacific", "What gas do plants absorb?": "carbon dioxide",
    "Who painted the Mona Lisa?": "Leonardo da Vinci", "What is the largest mammal?": "blue whale",
    "What is the tallest mountain in the world?": "Everest", "Which language is spoken in Brazil?": "Portuguese",
    "What color do you get by mixing blue and yellow?": "green", "What is the currency of Japan?": "yen",
    "What is the main ingredient of bread?": "flour", "Which animal is known as the king of the jungle?": "lion",
    "How many legs does a spider have?": "eight", "What is the longest river in Africa?": "Nile",
    "Which country is home to the kangaroo?": "Australia", "What is H2O commonly called?": "water",
    "Who was the first president of the United States?": "Washington", "What do bees make?": "honey",
    "In which country is the Eiffel Tower?": "France", "What is the fastest land animal?": "cheetah",
    "How many minutes are in an hour?": "60", "What star is at the center of our solar system?": "sun",
    "Which metal is liquid at room temperature?": "mercury", "Which organ pumps blood?": "heart",
    "What is the opposite of hot?": "cold", "What is 5 plus 7?": "12", "How many sides does a triangle have?": "three",
    "Which season comes after winter?": "spring", "What is frozen water called?": "ice",
    "What is the largest planet in our solar system?": "Jupiter", "How many days are in a week?": "seven",
    "Which month has the fewest days?": "February", "What is the capital city of the United Kingdom?": "London",
    "What is the boiling point of water in Celsius?": "100", "What is the opposite of up?": "down",
    "What is the color of grass?": "green", "How many hours are in a day?": "24", "What is the opposite of in?": "out",
    "What do cows give us to drink?": "milk", "What is the first month of the year?": "January",
}  # fmt: skip
THINGS = (
    "bread", "rain", "a river", "music", "a bicycle", "the moon", "coffee", "a library", "winter", "a tree", "salt",
    "a clock", "a bridge", "paper", "a doctor", "the sea", "a garden", "snow", "glass", "a market", "a horse", "honey",
    "a window", "iron", "a teacher", "cotton", "a song", "a mountain", "fire", "a boat",
)  # fmt: skip
UNSAID = ("Paris", "Berlin", "Rome", "Madrid", "Lisbon", "Tokyo", "Beijing", "Moscow", "Cairo", "Athens", "Warsaw",
          "Vienna", "Oslo", "Dublin", "Bangkok", "Seoul", "London", "Jupiter", "Mars", "Shakespeare")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Cases of one shape. unsaid: words that the variant cannot say. metric: by which the loss must be named.
    right: the oracle, of a row, an answer and whether it ended by itself."""

    name: str
    rows: tuple[Row, ...]
    unsaid: tuple[str, ...]
    metric: str
    right: Callable[[Mapping[str, Any], str, bool], bool]


def _names(row: Mapping[str, Any], text: str, ended: bool) -> bool:
    wanted = row.get("answers", [row.get("answer")])
    return ended and any(re.search(rf"(?<!\w){re.escape(one)}(?!\w)", text, re.IGNORECASE) for one in wanted)


def _as_asked(row: Mapping[str, Any], text: str, ended: bool) -> bool:
    """As the schema of these cases asks: every key there, a text."""
    body = re.fullmatch(r"\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*", text, re.DOTALL)
    try:
        read = json.loads(body[1]) if body else None
    except ValueError:
        return False
    return isinstance(read, dict) and all(isinstance(read.get(key), str) for key in row["schema"]["required"])


def _calls(row: Mapping[str, Any], text: str, ended: bool) -> bool:
    try:
        calls = [json.loads(one) for one in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)]
    except ValueError:
        return False
    return calls == row["expected_calls"]


def _ended(row: Mapping[str, Any], text: str, ended: bool) -> bool:
    return ended


def _sentences() -> tuple[Row, ...]:
    rows = [{"question": f"What is the capital of {land}?", "answer": city} for land, city in CAPITALS.items()]
    return (*rows, *({"question": question, "answer": answer} for question, answer in FACTS.items()))


def _several() -> tuple[Row, ...]:
    rows = [{"question": f"Name the capital of {land}.", "answers": [f"{city} City", city]}
            for land, city in CAPITALS.items()]  # fmt: skip
    facts = ({"question": f"{question} Say it in a few words.", "answers": [answer, f"the {answer}s"]}
             for question, answer in FACTS.items())  # fmt: skip
    return (*rows, *facts)


def _prompts() -> tuple[Row, ...]:
    asked = ("In one short sentence, what is {}?", "Say one short thing about {}.", "In five words, describe {}.")
    return tuple({"question": text.format(thing), "kind": str(number)}
                 for number, text in enumerate(asked) for thing in THINGS)  # fmt: skip


def _json() -> tuple[Row, ...]:
    keys = [("country", "capital", land) for land in CAPITALS] + [("name", "use", thing) for thing in THINGS]
    return tuple(
        {
            "question": f'Answer with a JSON object alone, with the keys "{first}" and "{second}", of {what}.',
            "schema": {
                "type": "object",
                "properties": {first: {"type": "string"}, second: {"type": "string"}},
                "required": [first, second],
            },
        }
        for first, second, what in keys
    )


def _tool(name: str) -> Row:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    return {"type": "function", "function": {"name": name, "parameters": city}}


def _tools() -> tuple[Row, ...]:
    def ask(of: str, city: str) -> Row:
        return {"role": "user", "content": f"What is the {of} in {city}?"}

    def call(of: str, city: str) -> Row:
        said = json.dumps({"name": f"get_{of}", "arguments": {"city": city}})
        return {"role": "assistant", "content": f"<tool_call>\n{said}\n</tool_call>"}

    shown = [ask("weather", "Miami"), call("weather", "Miami"), ask("time", "Boston"), call("time", "Boston")]
    return tuple(
        {
            "messages": [*shown, ask(of, city)],
            "tools": [_tool("get_weather"), _tool("get_time")],
            "expected_calls": [{"name": f"get_{of}", "arguments": {"city": city}}],
        }
        for of in ("weather", "time")
        for city in CAPITALS.values()
    )


def shapes() -> tuple[Shape, ...]:
    """The five."""
    return (
        Shape(name="sentences", rows=_sentences(), unsaid=UNSAID, metric="contains", right=_names),
        Shape(name="several references", rows=_several(), unsaid=UNSAID, metric="contains", right=_names),
        Shape(name="prompts alone", rows=_prompts(), unsaid=("<|im_end|>",), metric="format.finished", right=_ended),
        Shape(name="JSON", rows=_json(), unsaid=("capital",), metric="json.schema", right=_as_asked),
        Shape(name="tools", rows=_tools(), unsaid=UNSAID[:16], metric="tool_call.correct", right=_calls),
    )
