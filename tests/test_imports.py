"""Imports go downward only, and nothing heavy is loaded before it is needed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from tests.house.imports import ROOT, circles, graph, modules, parsed, statements
from tests.house.rooms import ALLOWED, may_import, room


def test_no_import_climbs_to_a_higher_room():
    """Of any module, `__init__` and the command line too, anywhere in it, and by name."""
    assert [f"{name} imports {target}" for name, targets in graph().items() for target in targets
            if not may_import(name, target)] == []  # fmt: skip


def test_the_table_of_rooms_has_no_circle_and_no_room_that_is_not_there():
    assert tuple(TopologicalSorter(ALLOWED).static_order())
    assert set(ALLOWED) == {room(name) for name in graph()}


def test_the_product_knows_of_no_test():
    assert [name for name, path in modules().items() if re.search(r"\btests\b", "".join(_texts(path)))] == []


def _texts(path: Path) -> Iterator[str]:
    """What a module whose text names tests imports, and the texts by which it might."""
    for node in ast.walk(parsed(path)) if "tests" in path.read_text(encoding="utf-8") else ():
        if isinstance(node, ast.ImportFrom):
            yield f"{node.module} "
        elif isinstance(node, ast.Import):
            yield from (f"{alias.name} " for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) == "import_module":
            yield f"{ast.unparse(node.args[0])} "


def test_the_import_graph_has_no_circle():
    """Imports for types alone are imports too: who reads one module has to read the other."""
    assert [" -> ".join(circle) for circle in circles(graph())] == []


def test_a_module_that_is_imported_by_name_is_seen(tmp_path):
    from tests.house.imports import imported

    path = tmp_path / "some.py"
    path.write_text(
        "import importlib\nfrom importlib import import_module\nimport_module('a.b')\n"
        "importlib.import_module(f'a.c.{name}')\nimport_module(f'{__name__}.x')\nimport_module(name)\n"
    )
    known = {"a", "a.b", "a.c", "a.c.d", "a.c.e", "some.x", "some.y"}
    assert imported("some", path, known) == {"a.b", "a.c.d", "a.c.e", "some.x"}


def test_kernels_import_torch_alone_and_never_qualgate():
    for name, path in modules().items():
        if room(name) == "qualgate_kernels":
            tops = {
                (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else alias.name.split(".")[0]
                for node in statements(parsed(path))
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
    "qualgate.engine.blocks",
    "qualgate.engine.schedule",
    "qualgate.gate.verdict",
    "qualgate.engine.speculation.control",
    "qualgate.store.runs",
    "qualgate.store.queries",
    "qualgate.pipeline.plan",
    "qualgate.run",
    "qualgate.report.summary",
)


def test_light_modules_load_neither_torch_nor_a_model_library():
    code = (
        "import sys\nfrom importlib import import_module\nfor name in sys.argv[1:]:\n    import_module(name)\n"
        "    if heavy := {'torch', 'aiohttp', 'streamlit', 'ray', 'lm_eval'} & set(sys.modules):\n"
        "        sys.exit(f'{name} loads {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code, *LIGHT], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr


def test_importing_the_command_line_loads_no_room():
    rooms = "{'.'.join(m.split('.')[:2]) for m in sys.modules if m.startswith('qualgate.')}"
    code = f"import sys, qualgate.cli; print(sorted({rooms}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "['qualgate.cli', 'qualgate.errors']"
