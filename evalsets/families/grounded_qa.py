"""Questions about a short passage. The answer quotes the sentence it rests on, then says the answer.

The passage mixes facts about several made-up people and places; a question may compare two of them, or ask what the
passage does not state, and then the one right answer is NOT_STATED.
"""

from __future__ import annotations

from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values

NOT_STATED = "Not stated."

# Relation: fact about {s} with value {v}, question about {s}, kind of value; a fourth part asks from {v} back to {s}.
RELATIONS = {
    "qa-01": ("{s} lives in {v}.", "Where does {s} live?", "name", "Who lives in {v}?"),
    "qa-02": ("{s} was born in {v}.", "When was {s} born?", "year"),
    "qa-03": ("{s} works for {v}.", "Who does {s} work for?", "name", "Who works for {v}?"),
    "qa-04": ("{s} keeps {v} goats.", "How many goats does {s} keep?", "count"),
    "qa-05": ("{s} teaches {v}.", "What does {s} teach?", "word", "Who teaches {v}?"),
    "qa-06": ("{s} is married to {v}.", "Who is {s} married to?", "name"),
    "qa-07": ("{s} paid {v} euro.", "How much did {s} pay?", "count"),
    "qa-08": ("{s} drives a {v} car.", "What colour is the car of {s}?", "colour"),
    "qa-09": ("{s} sings in the choir {v}.", "Which choir does {s} sing in?", "name", "Who sings in the choir {v}?"),
    "qa-10": ("{s} has the badge {v}.", "Which badge does {s} have?", "code", "Who has the badge {v}?"),
    "qa-11": ("{s} moved in {v}.", "In which year did {s} move?", "year"),
    "qa-12": ("{s} bakes {v}.", "What does {s} bake?", "word", "Who bakes {v}?"),
    "qa-13": ("{s} runs the shop {v}.", "Which shop does {s} run?", "name", "Who runs the shop {v}?"),
    "qa-14": ("{s} weighs {v} kg.", "How much does {s} weigh?", "count"),
    "qa-15": ("{s} sails on the {v}.", "Which ship does {s} sail on?", "name", "Who sails on the {v}?"),
    "qa-16": ("{s} sleeps in room {v}.", "In which room does {s} sleep?", "code", "Who sleeps in room {v}?"),
    "qa-17": ("{s} painted the door {v}.", "What colour did {s} paint the door?", "colour"),
    "qa-18": ("{s} studies {v}.", "What does {s} study?", "word", "Who studies {v}?"),
    "qa-19": ("{s} won {v} medals.", "How many medals did {s} win?", "count"),
    "qa-20": ("{s} retired in {v}.", "When did {s} retire?", "year"),
    "qa-21": ("{s} sells {v}.", "What does {s} sell?", "word", "Who sells {v}?"),
    "qa-22": ("{s} reports to {v}.", "Who does {s} report to?", "name"),
    "qa-23": ("{s} flew to {v}.", "Where did {s} fly?", "name", "Who flew to {v}?"),
    "qa-24": ("{s} owns {v} boats.", "How many boats does {s} own?", "count"),
    "qa-25": ("{s} collects {v}.", "What does {s} collect?", "word", "Who collects {v}?"),
    "qa-26": ("{s} planted {v} trees.", "How many trees did {s} plant?", "count"),
}  # fmt: skip
TEMPLATES = RELATIONS
COLOURS = ("red", "blue", "green", "black", "white", "grey")


def draw(values: Values, kind: str) -> str:
    """A value of a kind that RELATIONS names, as text."""
    if kind == "year":
        return str(values.integer(1900, 2040))
    if kind == "count":
        return str(values.integer(2, 99))
    if kind == "colour":
        return values.rng.choice(COLOURS)
    return {"name": values.name, "word": values.word, "code": values.code}[kind]()


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """Two to six people and two to eight facts, by the level; what is asked is told of two of them."""
    rng = values.rng
    _, question, kind, *back = RELATIONS[template]
    people = values.names(2 + round(4 * level))
    count = 2 + round(6 * level)
    # The asked relation is told of two people, so that neither the person nor the relation alone finds the sentence.
    stated = [(template, person) for person in people[:2]]
    rest = [(other, person) for other in rng.sample(list(RELATIONS), 6) if other != template for person in people]
    stated += rng.sample(rest, min(count - 2, len(rest)))
    facts = {pair: draw(values, RELATIONS[pair[0]][2]) for pair in stated}
    sentences = {pair: RELATIONS[pair[0]][0].format(s=pair[1], v=value) for pair, value in facts.items()}
    passage = " ".join(rng.sample(list(sentences.values()), len(sentences)))

    subject = people[0]
    quote, value = sentences[template, subject], facts[template, subject]
    form = rng.choices(("direct", "back", "compare", "missing"), (5, 2 if back else 0, 2 * level, 1.5))[0]
    if facts[template, people[1]] == value:  # both share it: asking back or comparing would have no single answer
        form = "direct"
    if form == "back":
        question, answer = back[0].format(v=value), f"{quote} Answer: {subject}"
    elif form == "compare" and kind in ("count", "year"):
        other = people[1]
        more = max(people[:2], key=lambda person: int(facts[template, person]))
        question = f"{question.format(s=subject)} And {other}? Who has the larger number?"
        answer = f"{quote} {sentences[template, other]} Answer: {more}"
    elif form == "missing":
        if len(people) > 2 and rng.random() < 0.5:
            subject = people[2]
        else:
            subject = values.names(1, beyond=people)[0]
        question, answer = question.format(s=subject), NOT_STATED
    else:
        form, question, answer = "direct", question.format(s=subject), f"{quote} Answer: {value}"
    return {
        "task": "grounded_qa",
        "messages": user(f"{passage}\n{question}"),
        "answer": answer,
        "tags": [f"template:{template}", f"form:{form}"],
    }
