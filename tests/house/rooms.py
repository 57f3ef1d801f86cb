"""Who may import whom. A room is a package or a module directly inside `qualgate`, or one of the other packages."""

from __future__ import annotations

FLOOR = {"errors", "records", "text", "plugins"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "records": set(),
    "text": set(),
    "plugins": {"errors", "text"},
    "documents": {"errors"},
    "evalsets": FLOOR | {"documents", "quant", "scoring"},
    "config": FLOOR | {"documents", "quant", "refmodel", "evalsets", "store"},  # how an address is written
    "scoring": FLOOR | {"sandbox"},
    "sandbox": set(),
    "stats": set(),
    "gate": FLOOR | {"stats"},
    "quant": FLOOR | {"qualgate_kernels"},
    "engine": FLOOR | {"quant", "scoring", "sandbox", "qualgate_kernels"},
    "store": FLOOR,
    "served": FLOOR | {"engine", "quant", "scoring", "stats"},
    "workers": FLOOR | {"engine", "served"},
    "refmodel": FLOOR | {"scoring", "qualgate_evalsets"},
    "harness": FLOOR | {"engine", "quant", "refmodel"},
    "pipeline": FLOOR
    | {"config", "documents", "engine", "evalsets", "gate", "harness", "intake", "quant", "qualgate_kernels"}
    | {"scoring", "served", "stats", "store", "workers"},
    "report": FLOOR | {"engine", "gate", "intake", "pipeline", "quant", "scoring", "store"},
    "run": FLOOR | {"config", "gate", "intake", "pipeline", "served", "store", "workers"},
    "intake": FLOOR | {"documents", "gate", "sandbox", "scoring"},
    "qualgate": {"pipeline", "records", "report", "run", "errors", "config", "scoring"},
    "cli": FLOOR
    | {"qualgate", "config", "engine", "evalsets", "gate", "intake", "pipeline", "quant", "refmodel", "report"}
    | {"sandbox", "scoring", "served", "store", "qualgate_app", "qualgate_kernels"},
    "qualgate_kernels": set(),
    "qualgate_evalsets": {"records"},
    "qualgate_migrations": {"store"},
    "qualgate_app": FLOOR | {"store", "report"},
}

# What a report and the dashboard show alike: the sections of a report as blocks, a load's tables, the diff of two
# answers, the pictures, the changes since the last run.
SHARED_WITH_APP = {"qualgate.report"} | {
    f"qualgate.report.{name}"
    for name in (
        "blind",
        "blocks",
        "diff",
        "four_arms",
        "html_blocks",
        "load_sections",
        "nights",
        "page",
        "plots",
        "run_changes",
        "run_list",
        "sections",
        "since_last",
        "summary",
    )
}


def room(module: str) -> str:
    """`gate` of `qualgate.gate.verdict`; other packages of ours are one room each. `python -m qualgate` is the CLI."""
    parts = module.split(".")
    if module == "qualgate.__main__":
        return "cli"
    return parts[1] if parts[0] == "qualgate" and len(parts) > 1 else parts[0]


def may_import(module: str, target: str) -> bool:
    """Whether the table lets one module name another."""
    here, there = room(module), room(target)
    if here == "qualgate_app" and there == "report":
        return target in SHARED_WITH_APP
    return there == here or there in ALLOWED.get(here, set())
