"""JSON extraction: a short note, the wanted fields with their types, one line of compact JSON as the answer.

Keys stand in the order the prompt asks for them; a field the note does not state is null. The prompt shows the schema
in short form (`{"age": integer}`), the case carries it as JSON Schema 2020-12.
"""

# ruff: noqa: E501  one note a line
from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values

COLOURS = ("red", "blue", "green", "black", "white")
KINDS: dict[str, tuple[str, Callable[[Values], Any]]] = {
    # kind: (JSON type, maker)
    "name": ("string", Values.name),
    "word": ("string", Values.word),
    "code": ("string", Values.code),
    "date": ("string", Values.date),
    "colour": ("string", lambda values: values.rng.choice(COLOURS)),
    "few": ("integer", lambda values: values.integer(2, 99)),
    "many": ("integer", lambda values: values.integer(100, 9999)),
    "price": ("number", lambda values: float(values.price())),
    "flag": ("boolean", lambda values: values.rng.random() < 0.5),
    "list": ("array", lambda values: values.words(values.rng.choice((2, 2, 3)))),
}

# One note a line: how it opens, then its fields as `key kind phrase`. A flag's phrase is its two readings.
NOTES = {
    "json-01": ("Guest", "name name called @", "room many in room @", "nights few staying @ nights", "city name from @", "vip flag vip/not vip"),
    "json-02": ("Order", "id code number @", "item word for @", "qty few quantity @", "total price total @", "paid flag paid/unpaid"),
    "json-03": ("Book", "title name titled @", "author name by @", "year many from the year @", "pages few with @ pages", "tags list about @"),
    "json-04": ("Car", "brand name made by @", "colour colour painted @", "plate code plate @", "price many costing @", "sold flag sold/unsold"),
    "json-05": ("Worker", "name name named @", "age few aged @", "team word in team @", "salary many earning @", "skills list skilled in @"),
    "json-06": ("Parcel", "code code labelled @", "sender name from @", "receiver name to @", "grams many weighing @ g", "fragile flag fragile/sturdy"),
    "json-07": ("Flight", "flight code number @", "origin name from @", "target name to @", "date date on @", "delay few late by @ min"),
    "json-08": ("Sensor", "sensor code id @", "site name at @", "value price reading @", "alarm flag alarm on/alarm off", "day date read on @"),
    "json-09": ("Meal", "dish word named @", "cook name cooked by @", "price price for @ euro", "parts list made of @", "vegan flag vegan/not vegan"),
    "json-10": ("House", "street name on @ street", "rooms few with @ rooms", "rent many renting at @", "owner name owned by @", "colour colour coloured @"),
    "json-11": ("Patient", "name name called @", "age few aged @", "ward word in ward @", "doctor name seen by @", "visit date on @"),
    "json-12": ("Invoice", "number many number @", "client name for @", "amount price amount @", "due date due @", "paid flag settled/open"),
    "json-13": ("Plant", "plant word named @", "height few @ cm tall", "garden name in garden @", "colour colour with @ leaves", "uses list used for @"),
    "json-14": ("Team", "team name named @", "coach name coached by @", "points few with @ points", "city name from @", "players list fielding @"),
    "json-15": ("Ticket", "ticket code marked @", "user name opened by @", "topic word about @", "hours few open @ hours", "urgent flag urgent/routine"),
    "json-16": ("Film", "film name called @", "director name shot by @", "minutes many lasting @ min", "score price rated @", "genres list mixing @"),
    "json-17": ("Phone", "model code model @", "maker name by @", "price many at @", "colour colour in @", "used flag used/new"),
    "json-18": ("Trip", "traveller name by @", "target name to @", "days few for @ days", "start date from @", "stops list via @"),
    "json-19": ("Course", "course word on @", "teacher name taught by @", "seats few with @ seats", "room code in @", "online flag online/in class"),
    "json-20": ("Ship", "ship name called @", "port name of @", "crew few crewed by @", "tons many of @ tons", "cargo list loaded with @"),
    "json-21": ("Farm", "farm name named @", "owner name run by @", "cows few keeping @ cows", "hectares many on @ hectares", "crops list growing @"),
    "json-22": ("Loan", "bank name from @", "sum many over @", "rate price at @ percent", "until date until @", "fixed flag fixed/variable"),
    "json-23": ("Photo", "file code saved as @", "place name taken in @", "width many @ wide", "camera word by camera @", "colours flag in colour/in grey"),
    "json-24": ("Game", "game name called @", "level few at level @", "player name played by @", "score many scoring @", "items list holding @"),
    "json-25": ("Letter", "sender name from @", "receiver name to @", "date date sent @", "topic word about @", "signed flag signed/unsigned"),
    "json-26": ("Machine", "machine code named @", "hall name in @", "hours many run for @ hours", "operator name run by @", "faults list with faults @"),
}  # fmt: skip


def say(phrase: str, kind: str, value: Any) -> str:
    """A field's phrase with its value: a flag takes one side of the slash, a list is joined with `and`."""
    if kind == "flag":
        return phrase.split("/")[0 if value else 1]
    if kind == "list":
        return phrase.replace("@", " and ".join([", ".join(value[:-1]), value[-1]]))
    return phrase.replace("@", f"{value:.2f}" if kind == "price" else str(value))


def schema(fields: list[tuple[str, str]], nullable: set[str]) -> dict[str, Any]:
    """JSON Schema of the answer: every asked field required, nothing else allowed."""
    properties: dict[str, Any] = {}
    for key, kind in fields:
        json_type = KINDS[kind][0]
        properties[key] = {"type": [json_type, "null"] if key in nullable else json_type}
        if kind == "list":
            properties[key]["items"] = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": [key for key, _ in fields],
        "additionalProperties": False,
    }


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """The level sets how many fields the note states, and how often one is asked that it does not: then `null` is
    right."""
    rng = values.rng
    opening, *rows = NOTES[template]
    fields = [tuple(row.split(" ", 2)) for row in rows]
    stated = rng.sample(fields, rng.randint(2, 2 + round(3 * level)))
    record = {key: KINDS[kind][1](values) for key, kind, _ in stated}
    text = f"{opening} " + ", ".join(say(phrase, kind, record[key]) for key, kind, phrase in stated) + "."
    requested = rng.sample(stated, rng.randint(min(2, len(stated)), len(stated)))
    missing = [field for field in fields if field not in stated]
    nullable = set()
    if missing and rng.random() < 0.15 + 0.35 * level:
        extra = rng.choice(missing)
        nullable.add(extra[0])
        requested.insert(rng.randint(0, len(requested)), extra)
    wanted = [(key, kind) for key, kind, _ in requested]
    short = ", ".join(f'"{key}": {KINDS[kind][0]}{"?" if key in nullable else ""}' for key, kind in wanted)
    return {
        "task": "json_extract",
        "messages": user(f"Extract JSON {{{short}}}\n{text}"),
        "schema": schema(wanted, nullable),
        "answer": json.dumps({key: record.get(key) for key, _ in wanted}, separators=(",", ":")),
        "tags": [f"template:{template}", f"fields:{len(wanted)}"],
    }


TEMPLATES = NOTES
