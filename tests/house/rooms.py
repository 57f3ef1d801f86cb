"""Who may import whom. A room is a package or a module directly inside `qualgate`, or one of the other packages."""

from __future__ import annotations

FLOOR = {"errors", "identity", "records", "metrics", "escaping", "formatting", "plugins"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "identity": set(),
    "records": {"identity"},
    "metrics": set(),
    "escaping": set(),
    "formatting": {"metrics", "records"},
    "plugins": {"errors", "escaping"},
    "documents": {"errors"},
    "evalsets": FLOOR | {"documents", "scoring"},
    "quantize": FLOOR | {"evalsets", "quant", "engine", "qualgate_kernels"},
    "config": FLOOR | {"documents", "quant", "refmodel", "evalsets", "quantize", "store"},  # how an address is written
    "scoring": FLOOR | {"sandbox"},
    "sandbox": set(),
    "stats": set(),
    "speculation": set(),
    "gate": FLOOR | {"stats"},
    "quant": FLOOR | {"qualgate_kernels"},
    "engine": FLOOR | {"quant", "scoring", "sandbox", "speculation", "qualgate_kernels"},
    "store": FLOOR,
    "served": FLOOR | {"engine", "quant", "scoring", "stats"},
    "workers": FLOOR | {"engine", "served"},
    "refmodel": FLOOR | {"scoring", "qualgate_evalsets"},
    "harness": FLOOR | {"engine", "quant", "refmodel"},
    "pipeline": FLOOR
    | {"config", "documents", "engine", "evalsets", "gate", "harness", "intake", "quant", "quantize"}
    | {"scoring", "served", "stats", "store", "workers"},
    "load": FLOOR | {"config", "engine", "intake", "pipeline", "served", "stats"},
    "report": FLOOR | {"engine", "gate", "intake", "load", "pipeline", "quant", "quantize", "scoring", "store"},
    "run": FLOOR | {"config", "gate", "intake", "pipeline", "served", "store", "workers"},
    "intake": FLOOR | {"documents", "gate"},
    "qualgate": {"pipeline", "records", "report", "run", "errors", "config", "scoring"},
    "cli": FLOOR
    | {"qualgate", "config", "engine", "evalsets", "gate", "intake", "load", "pipeline"}
    | {
        "quant",
        "quantize",
        "refmodel",
        "report",
        "sandbox",
        "scoring",
        "served",
        "store",
        "qualgate_app",
        "qualgate_kernels",
    },
    "__main__": {"cli"},
    "qualgate_kernels": set(),
    "qualgate_evalsets": {"identity"},
    "qualgate_migrations": {"store"},
    "qualgate_app": FLOOR | {"store", "report"},
}

# What a report and the dashboard show alike: the sections of a report as blocks, a load's tables, the diff of two
# answers, the pictures.
SHARED_WITH_APP = {"qualgate.report"} | {
    f"qualgate.report.{name}"
    for name in (
        "blocks",
        "diff",
        "four_arms",
        "html_blocks",
        "load_sections",
        "nights",
        "page",
        "plots",
        "run_list",
        "sections",
        "summary",
    )
}


def room(module: str) -> str:
    """`gate` of `qualgate.gate.verdict`; other packages of ours are one room each."""
    parts = module.split(".")
    return parts[1] if parts[0] == "qualgate" and len(parts) > 1 else parts[0]


def may_import(module: str, target: str) -> bool:
    """Whether the table lets one module name another."""
    here, there = room(module), room(target)
    if here == "qualgate_app" and there == "report":
        return target in SHARED_WITH_APP
    return there == here or there in ALLOWED.get(here, set())
