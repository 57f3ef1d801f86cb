"""Record reformatting: the same few records, read in one notation and written in another.

A template is an ordered pair of notations. Level sets how many records and fields there are: an answer runs to 20
tokens at level 0 and to 200 at level 1, so an error has room to grow.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import Values

Records = list[dict[str, str]]
FIELDS: dict[str, Callable[[Values], str]] = {
    "name": Values.name,
    "city": Values.name,
    "owner": Values.name,
    "item": Values.word,
    "team": Values.word,
    "kind": Values.word,
    "code": Values.code,
    "id": lambda values: str(values.integer(100, 999)),
    "size": lambda values: str(values.integer(2, 99)),
    "year": lambda values: str(values.integer(1900, 2099)),
    "price": Values.price,
}


def _csv(records: Records) -> str:
    return "\n".join(",".join(row) for row in (records[0], *(record.values() for record in records)))


def _pipes(records: Records) -> str:
    return "\n".join(" | ".join(row) for row in (records[0], *(record.values() for record in records)))


def _markdown(records: Records) -> str:
    rows = [list(records[0]), ["-"] * len(records[0]), *(list(record.values()) for record in records)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _json_lines(records: Records) -> str:
    return "\n".join(json.dumps(record) for record in records)


def _blocks(records: Records) -> str:
    return "\n\n".join("\n".join(f"{key}: {value}" for key, value in record.items()) for record in records)


def _yaml(records: Records) -> str:
    return "\n".join("- " + "\n  ".join(f"{key}: {value}" for key, value in record.items()) for record in records)


def _pairs(records: Records) -> str:
    return "\n".join(" ".join(f"{key}={value}" for key, value in record.items()) for record in records)


def _ini(records: Records) -> str:
    sections = []
    for number, record in enumerate(records, start=1):
        sections.append("\n".join([f"[{number}]", *(f"{key}={value}" for key, value in record.items())]))
    return "\n".join(sections)


def _xml(records: Records) -> str:
    return "\n".join("<r " + " ".join(f'{key}="{value}"' for key, value in record.items()) + "/>" for record in records)


def _columns(records: Records) -> str:
    return "\n".join(f"{key}: " + ", ".join(record[key] for record in records) for key in records[0])


NOTATIONS = {
    "csv": _csv, "pipes": _pipes, "markdown": _markdown, "json": _json_lines, "blocks": _blocks,
    "yaml": _yaml, "pairs": _pairs, "ini": _ini, "xml": _xml, "columns": _columns,
}  # fmt: skip
ROUTES = {
    "csv": ("json", "markdown", "blocks", "yaml", "pairs", "xml", "ini"),
    "pipes": ("json", "csv", "yaml"),
    "markdown": ("csv", "json", "pairs"),
    "json": ("csv", "markdown", "pairs", "yaml"),
    "blocks": ("json", "csv"),
    "yaml": ("json", "pairs"),
    "pairs": ("json", "csv", "blocks"),
    "ini": ("json", "csv"),
    "xml": ("json", "csv"),
    "columns": ("csv", "json"),
}
TEMPLATES = {
    f"form-{number:02}": route
    for number, route in enumerate(((source, target) for source in ROUTES for target in ROUTES[source]), start=1)
}


def make_case(values: Values, level: float, template: str) -> dict[str, Any]:
    """One to six records of two to four fields, by the level."""
    rng = values.rng
    source, target = TEMPLATES[template]
    names = rng.sample(list(FIELDS), 2 + round(rng.random() * 0.6 + 1.6 * level))
    count = 1 + round(5 * level)
    records = [{name: FIELDS[name](values) for name in names} for _ in range(count)]
    return {
        "task": "reformat",
        "messages": user(f"{source} to {target}:\n{NOTATIONS[source](records)}"),
        "answer": NOTATIONS[target](records),
        "tags": [f"template:{template}", f"records:{count}"],
    }
