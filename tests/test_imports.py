"""Imports go downward only, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "qualgate": ROOT / "qualgate",
    "qualgate_kernels": ROOT / "kernels" / "qualgate_kernels",
    "qualgate_app": ROOT / "app",
    "qualgate_migrations": ROOT / "migrations",
    "qualgate_evalsets": ROOT / "evalsets",
}

# A room may import the rooms named after it (and itself); `run`, `bench` and `cli` stand on top.
FLOOR = {"errors", "identity", "records", "metrics", "escaping", "formatting", "plugins", "version"}
ALLOWED = {
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
    "quant": FLOOR,
    "engine": FLOOR | {"quant"},
    "store": FLOOR,
    "workers": FLOOR | {"engine"},
    "refmodel": FLOOR | {"scoring"},
    "qualgate_evalsets": {"identity"},
    "__main__": {"cli"},
    "harness": FLOOR | {"engine", "quant", "refmodel"},
    "pipeline": FLOOR
    | {"config", "documents", "engine", "evalsets", "gate", "harness", "intake", "quant", "quantize", "scoring"}
    | {"stats", "store", "workers"},
    "report": FLOOR | {"drift", "engine", "quant", "stats", "store", "pipeline"},
    "run": FLOOR
    | {"config", "engine", "evalsets", "gate", "harness", "intake", "pipeline", "quant", "scoring", "store"}
    | {"workers"},
    "doctor": FLOOR | {"quant", "evalsets", "refmodel", "sandbox"},
    "intake": FLOOR | {"documents", "gate"},
}
LEAVES = {
    "doctor": {"qualgate_kernels"},
    "quant": {"qualgate_kernels"},
    "engine": {"qualgate_kernels"},
    "refmodel": {"qualgate_evalsets"},
}
# What a report and the dashboard show alike: the words of a four-arm answer, the diff of two answers, the pictures.
SHARED_WITH_APP = {"qualgate.report", *(f"qualgate.report.{name}" for name in ("arms", "diff", "page", "plots"))}


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if parts[0] == "qualgate" and len(parts) > 1 else parts[0]


def modules() -> dict[str, Path]:
    """Every module's file. All files are walked: ask once."""
    found = {}
    for package, folder in SOURCES.items():
        for path in folder.rglob("*.py"):
            name = ".".join((package, *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
            found[name] = path
    return found


def imported(path: Path, known: set[str]) -> set[str]:
    """Our own modules that a file imports, anywhere in it but under TYPE_CHECKING."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return {name for name in names if name in known}


MODULES = modules()
GRAPH = {name: imported(path, set(MODULES)) - {name} for name, path in MODULES.items()}


def test_no_import_climbs_to_a_higher_room():
    upward = []
    for name, targets in GRAPH.items():
        here = room(name)
        if here in ("qualgate", "cli", "bench"):
            continue
        for target in targets:
            there = room(target)
            allowed = ALLOWED.get(here, set()) | LEAVES.get(here, set()) | {here, "qualgate"}
            if here == "qualgate_app":
                allowed = {here, "store", "metrics", "errors", "records", "escaping", "formatting"} | {"qualgate"}
            if here == "qualgate_app" and target in SHARED_WITH_APP:
                continue
            if here == "qualgate_migrations":
                allowed = {here, "store", "qualgate"}
            if there not in allowed:
                upward.append(f"{name} imports {target}")
    assert upward == []


def test_the_import_graph_has_no_circle():
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    # A package's __init__ re-exports its modules; what counts is what the modules say of each other.
    graph = {name: targets - packages for name, targets in GRAPH.items() if name not in packages}
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"circle: {' -> '.join(error.args[1])}")


def test_kernels_import_torch_alone_and_never_qualgate():
    for name, path in modules().items():
        if room(name) == "qualgate_kernels":
            tops = {
                (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else alias.name.split(".")[0]
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in node.names
            }
            ours = {"torch", "triton", "qualgate_kernels"}
            assert tops - ours <= set(sys.stdlib_module_names), name


LIGHT = (
    "qualgate",
    "qualgate.cli",
    "qualgate.config",
    "qualgate.evalsets",
    "qualgate.scoring",
    "qualgate.scoring.code",
    "qualgate.gate.verdict",
    "qualgate.store.runs",
    "qualgate.store.queries",
    "qualgate.pipeline.plan",
    "qualgate.run",
    "qualgate.report.summary",
)


@pytest.mark.parametrize("module", LIGHT)
def test_a_light_module_loads_neither_torch_nor_a_model_library(module):
    heavy = "sorted({'torch', 'streamlit', 'ray', 'lm_eval'} & set(sys.modules))"
    code = f"import sys, {module}; sys.exit(str({heavy}) if {heavy} else 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_command_line_loads_no_room():
    rooms = "{'.'.join(m.split('.')[:2]) for m in sys.modules if m.startswith('qualgate.')}"
    code = f"import sys, qualgate.cli; print(sorted({rooms}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "['qualgate.cli', 'qualgate.errors']"
