"""Who may import whom. A room is a package or a module directly inside `qualgate`, or one of the other packages."""

from __future__ import annotations

FLOOR = {"errors", "identity", "records", "metrics", "escaping", "formatting", "plugins", "version"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "identity": set(),
    "records": {"identity"},
    "metrics": set(),
    "escaping": set(),
    "version": set(),
    "formatting": {"metrics", "records"},
    "plugins": {"errors", "escaping"},
    "documents": {"errors"},
    "evalsets": FLOOR | {"documents", "scoring"},
    "quantize": FLOOR | {"evalsets", "quant", "engine"},
    "config": FLOOR | {"documents", "quant", "refmodel", "evalsets", "quantize"},
    "scoring": FLOOR | {"sandbox"},
    "sandbox": set(),
    "stats": {"errors"},
    "drift": FLOOR,
    "gate": FLOOR | {"stats"},
    "quant": FLOOR | {"qualgate_kernels"},
    "engine": FLOOR | {"quant", "qualgate_kernels"},
    "store": FLOOR | {"qualgate_migrations"},
    "workers": FLOOR | {"engine"},
    "refmodel": FLOOR | {"scoring", "qualgate_evalsets"},
    "harness": FLOOR | {"engine", "quant", "refmodel"},
    "pipeline": FLOOR
    | {"config", "documents", "engine", "evalsets", "gate", "harness", "intake", "quantize", "scoring", "stats"}
    | {"store", "workers"},
    "report": FLOOR | {"drift", "engine", "gate", "stats", "store", "pipeline"},
    "run": FLOOR | {"config", "engine", "evalsets", "gate", "harness", "intake", "pipeline", "scoring", "store"},
    "doctor": FLOOR | {"engine", "evalsets", "refmodel", "sandbox", "qualgate_kernels"},
    "intake": FLOOR | {"documents", "gate"},
    "bench": FLOOR
    | {"config", "drift", "engine", "evalsets", "gate", "pipeline", "quant", "quantize", "refmodel", "report", "run"}
    | {"scoring", "stats", "store", "workers", "qualgate_kernels"},
    "qualgate": {"pipeline", "records", "report", "run", "errors", "config"},  # the public face, loaded when asked for
    "cli": FLOOR
    | {"qualgate", "bench", "config", "doctor", "documents", "drift", "engine", "evalsets", "gate", "harness", "intake"}
    | {"pipeline", "quant", "quantize", "refmodel", "report", "run", "scoring", "store", "qualgate_app"},
    "__main__": {"cli"},
    "qualgate_kernels": set(),
    "qualgate_evalsets": {"identity"},
    "qualgate_migrations": {"store"},
    "qualgate_app": {"store", "metrics", "errors", "records", "escaping", "formatting", "report", "version"},
}


def room(module: str) -> str:
    """`gate` of `qualgate.gate.verdict`; other packages of ours are one room each."""
    parts = module.split(".")
    return parts[1] if parts[0] == "qualgate" and len(parts) > 1 else parts[0]
