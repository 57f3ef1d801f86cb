"""Commands and options that were removed, each with its replacement."""

from __future__ import annotations

import re
from typing import Any

_COPY = "`qualgate db copy FROM TO` keeps the store whole; `qualgate db prune --older-than DAYS` then makes it smaller."
_STORED = "`qualgate drift GATE_FILE` shows the KL of a stored run."
_AGAIN = "`qualgate gate --run RUN` decides again from the answers in the store, and asks no server."
_CLUSTER = "Runs beyond this machine go to a Ray cluster: `qualgate submit GATE.yaml --cluster http://HEAD:8265`."
# Words of the command line behind `qualgate`.
GONE = {
    "db archive": _COPY,
    "db restore": "`qualgate report --store COPY` reads a copy that `qualgate db copy FROM TO` made.",
    "db prune --run": "Give --older-than DAYS.",
    "db prune --keep": "Give --older-than DAYS; runs that still count stay by themselves.",
    "run --record": _AGAIN,
    "run --replay": _AGAIN,
    "serve": "Start the model with vLLM, SGLang or llama.cpp, and name its address as the arm's `endpoint`, or the "
    "command that starts it as `serve`.",
    "worker": _CLUSTER,
    "run --lease": _CLUSTER,
    "submit --store": f"Write `store: postgresql://…` in the gate file. {_CLUSTER}",
    "submit --owner": f"Ray keeps the order of its jobs. {_CLUSTER}",
    "submit --priority": f"Ray keeps the order of its jobs. {_CLUSTER}",
    **{
        f"{name} --store": f"The cluster is asked, not a store: `qualgate {name} ID --cluster http://HEAD:8265`."
        for name in ("status", "wait", "cancel")
    },
    **{f"drift {option}": _STORED for option in ("--logits", "--tokens", "--chunk", "--keep", "--kept", "--at-most")},
}


def gone_line(error: Any) -> str:
    """Return the message for a parser error on a removed command or option; "" for any other error."""
    context, words = getattr(error, "ctx", None), list[str]()
    while context is not None and context.parent is not None:
        words.insert(0, context.info_name)
        context = context.parent
    command = re.match(r"No such command '([^']+)'", getattr(error, "message", None) or "")
    name = command[1] if command else getattr(error, "option_name", "")
    line = " ".join((*words, name))
    return f"`qualgate {line}` was taken out. {GONE[line]}" if line in GONE else ""
