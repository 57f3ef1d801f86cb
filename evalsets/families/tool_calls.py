"""Tool calls in the hermes dialect: one tool, a choice among tools, parallel calls, and requests no tool fits.

Every template is one tool with its way of asking. The answer is the exact call text, arguments in the order of the
tool's parameters; without a fitting tool it is the plain sentence NO_TOOL and `expected_calls` is empty.
"""

# ruff: noqa: E501  one tool a line
from __future__ import annotations

import json
from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values

NO_TOOL = "No tool fits this request."
TYPES = {"few": "integer", "many": "integer", "price": "number"}  # of a kind of value; every other is a string

# tool name: (description, request with {parameter}, parameters as `name:kind` or `name:one|of|these`; ? = optional,
# and then its words stand in [brackets] of the request)
TOOLS = {
    "get_weather": ("weather in a city", "What is the weather in {city}[ in {days} days]?", "city:name days?:few"),
    "send_email": ("send a mail", "Mail {to} about {subject}.", "to:name subject:word"),
    "book_room": ("reserve a room", "Book room {room} for {people} people[ on {date}].", "room:code people:few date?:date"),
    "set_alarm": ("set an alarm", "Wake me at {hour} o'clock for {label}.", "hour:few label:word"),
    "convert": ("convert money", "Convert {amount} from {source} to {target}.", "amount:many source:euro|dollar|yen target:pound|franc|peso"),
    "find_route": ("route between places", "How do I get from {start} to {goal}[ by {mode}]?", "start:name goal:name mode?:car|train|bike"),
    "play_song": ("play music", "Play {title} by {artist}.", "title:name artist:name"),
    "add_task": ("add to the to-do list", "Remind me to call {person} on {date}.", "person:name date:date"),
    "track_order": ("where an order is", "Where is order {order}?", "order:code"),
    "cancel_order": ("cancel an order", "Cancel order {order}[ because of {reason}].", "order:code reason?:word"),
    "find_book": ("search the library", "Find books on {topic}[ by {author}].", "topic:word author?:name"),
    "set_light": ("change a lamp", "Set the {room} lamp to {percent} percent.", "room:word percent:few"),
    "set_heating": ("change the heating", "Heat the {room} room to {degrees} degrees.", "room:word degrees:few"),
    "pay_bill": ("pay an invoice", "Pay {amount} to {payee}.", "amount:price payee:name"),
    "stock_price": ("price of a share", "What is a {company} share worth[ on {date}]?", "company:name date?:date"),
    "translate": ("translate a word", "Translate {word} into {language}.", "word:word language:french|german|spanish|dutch"),
    "find_hotel": ("search hotels", "Find a hotel in {city} under {price} euro.", "city:name price:many"),
    "order_meal": ("order food", "Order {count} portions of {dish}.", "count:few dish:word"),
    "create_user": ("new account", "Create an account for {name}[ as {role}].", "name:name role?:admin|guest|editor"),
    "delete_file": ("delete a file", "Delete the file {file}.", "file:word"),
    "start_timer": ("start a timer", "Start a timer of {seconds} seconds.", "seconds:many"),
    "check_stock": ("units in store", "How many {item} are in store {store}?", "item:word store:code"),
    "log_run": ("log a sport session", "I ran {meters} meters in {minutes} minutes.", "meters:many minutes:few"),
    "rate_film": ("rate a film", "Give the film {film} {stars} stars.", "film:name stars:few"),
    "call_taxi": ("order a taxi", "Send a taxi to {place}[ for {people} people].", "place:name people?:few"),
    "open_ticket": ("report a fault", "Machine {machine} has a {fault} fault.", "machine:code fault:word"),
    "water_plant": ("water a plant", "Give the {plant} plant {ml} ml of water.", "plant:word ml:many"),
    "find_person": ("look someone up", "Who is {name}[ from {city}]?", "name:name city?:name"),
}  # fmt: skip

TEMPLATES = {f"tool-{number:02}": name for number, name in enumerate(TOOLS, start=1)}


def parameters(tool: str) -> list[tuple[str, str, bool]]:
    """(name, kind, required) of each parameter, in order."""
    pairs = [part.split(":", 1) for part in TOOLS[tool][2].split()]
    return [(name.rstrip("?"), kind, not name.endswith("?")) for name, kind in pairs]


def function_tool(tool: str) -> dict[str, Any]:
    """The tool as an OpenAI-style function with a JSON Schema of its parameters."""
    properties = {
        name: {"type": "string", "enum": kind.split("|")} if "|" in kind else {"type": TYPES.get(kind, "string")}
        for name, kind, _ in parameters(tool)
    }
    return {
        "type": "function",
        "function": {
            "name": tool,
            "description": TOOLS[tool][0],
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": [name for name, _, required in parameters(tool) if required],
                "additionalProperties": False,
            },
        },
    }


def draw(values: Values, kind: str) -> Any:
    """A value of a kind that TOOLS names: a choice of `a|b`, a number, or a text."""
    if "|" in kind:
        return values.rng.choice(kind.split("|"))
    if kind == "few":
        return values.integer(2, 99)
    if kind == "many":
        return values.integer(100, 9999)
    if kind == "price":
        return float(values.price())
    return {"name": values.name, "word": values.word, "code": values.code, "date": values.date}[kind]()


def ask(values: Values, tool: str, level: float) -> tuple[str, dict[str, Any]]:
    """A request for this tool and the one right call."""
    request = TOOLS[tool][1]
    arguments = {}
    for name, kind, required in parameters(tool):
        if required or values.rng.random() < 0.25 + 0.4 * level:
            value = arguments[name] = draw(values, kind)
            request = request.replace(f"{{{name}}}", f"{value:.2f}" if kind == "price" else str(value))
    before, bracket, rest = request.partition("[")
    if bracket:
        inside, _, after = rest.partition("]")
        request = before + ("" if "{" in inside else inside) + after
    return request, {"name": tool, "arguments": arguments}


def call_text(call: dict[str, Any]) -> str:
    """The call as the shipped model's template writes it."""
    return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """The level sets how many tools are offered, and how often two calls are asked for."""
    rng = values.rng
    wanted = TEMPLATES[template]
    others = rng.sample([tool for tool in TOOLS if tool != wanted], 3)
    situation = rng.choices(("one", "choice", "parallel", "none"), (4 - 3 * level, 3, 3 * level, 1.5))[0]
    request, call = ask(values, wanted, level)
    calls = [call]
    if situation == "one":
        offered = [wanted]
    elif situation == "choice":
        offered = [wanted, *others[: rng.randint(1, 1 + round(2 * level))]]
    elif situation == "parallel":
        second = rng.choice((wanted, others[0]))
        more, call = ask(values, second, level)
        request, calls = f"{request} {more}", [*calls, call]
        offered = list(dict.fromkeys([wanted, second, *others[1 : 1 + round(level)]]))
    else:
        offered, calls = others[: rng.randint(1, 1 + round(2 * level))], []
    rng.shuffle(offered)
    return {
        "task": "tool_calls",
        "messages": user(request),
        "tools": [function_tool(tool) for tool in offered],
        "expected_calls": calls,
        "answer": "\n".join(map(call_text, calls)) or NO_TOOL,
        "tags": [f"template:{template}", f"situation:{situation}"],
    }
