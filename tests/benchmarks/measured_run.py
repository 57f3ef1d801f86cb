"""`qualgate run` with its processor seconds told apart: `python -m tests.benchmarks.measured_run FOLDER GATE_FILE`.

Each process of the run writes what its parts took to a file of its own in FOLDER, when it ends. A worker is a fresh
interpreter that loads this module as its main one, so it measures itself in the same way.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

FOLDER = "QUALGATE_MEASURED_RUN"
Parts = Mapping[str, tuple[str, ...]]  # functions by part, as "module:name"
IN_WORKERS: Parts = {
    "load": ("qualgate.engine.load:load_arm",),
    "model": ("qualgate.engine.packed:PackedEngine.run",),
}
IN_COORDINATOR: Parts = {
    "planning": ("qualgate.run:make_plan", "qualgate.run:try_before"),
    "scoring": ("qualgate.pipeline.generating:scores_of",),
    "store": (
        "qualgate.run:open_store",
        "qualgate.store.runs:begin",
        "qualgate.store.runs:record",
        "qualgate.store.runs:finish",
    ),
    "gate": ("qualgate.run:decide", "qualgate.run:doubts", "qualgate.run:known"),
    "report": ("qualgate.report.formats:write_report",),
}
took: defaultdict[str, float] = defaultdict(
    float
)  # processor seconds of this process by part; an inner part's are not its outer one's
_open: list[float] = []  # of each part under way: what inner ones took


def timed(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, with its processor seconds added to `part`."""

    def measured(*arguments: Any, **named: Any) -> Any:
        began = process_time()
        _open.append(0.0)
        try:
            return call(*arguments, **named)
        finally:
            seconds = process_time() - began
            took[part] += seconds - _open.pop()
            if _open:
                _open[-1] += seconds

    return measured


def measure(parts: Parts) -> None:
    """Put a clock around each function of `parts`."""
    for part, places in parts.items():
        for place in places:
            module, name = place.split(":")
            *owners, last = name.split(".")
            owner: Any = import_module(module)
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, last, timed(part, getattr(owner, last)))


def tell() -> None:
    """Write what this process took."""
    everything = process_time()
    parts = {**took, "rest": everything - sum(took.values())}
    (Path(os.environ[FOLDER]) / f"{os.getpid()}.json").write_text(json.dumps(parts))


def _in_worker() -> None:
    """Measure the imports of the engine, and then what it has brought."""
    from qualgate.workers import unit

    import_engine = unit.import_engine

    def imported() -> None:
        first = "qualgate.engine.job" not in sys.modules
        timed("imports", import_engine)()
        if first:
            measure(IN_WORKERS)

    unit.import_engine = imported
    took["imports"] += process_time()
    atexit.register(tell)


def main() -> None:
    """Run the gate file, and exit as `qualgate run` does."""
    os.environ[FOLDER] = sys.argv[1]
    atexit.register(tell)
    from qualgate import cli

    gc.disable()  # as the command's own imports are made
    measure(IN_COORDINATOR)
    gc.enable()
    took["imports"] += process_time()
    sys.argv = ["qualgate", "run", sys.argv[2]]
    cli.main()


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a worker's
    _in_worker()
