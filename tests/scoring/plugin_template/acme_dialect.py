"""A template for a dialect of your own: `⟦call name {…}⟧`. Declare it in your distribution's pyproject.toml:

[project.entry-points."qualgate.dialects"]
acme = "acme_dialect:ACME"
"""

import json
import re

from qualgate.scoring.tools.dialects import BadCall, Call, Dialect, read_json


def read(text, tools):
    head = re.match(r"\s*call (\w+) ", text)
    if not head:
        raise BadCall("call_shape", "no name")
    return [Call(head[1], read_json(text[head.end() :]))]


def write(calls):
    return "\n".join(f"⟦call {call.name} {json.dumps(call.arguments)}⟧" for call in calls)


ACME = Dialect(
    name="acme", source="acme/models v1.2 chat_template.jinja", open=("⟦",), close="⟧", read=read, write=write
)
