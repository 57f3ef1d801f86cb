"""Count how often one plan of the demo opens each file of its models, by Python's audit hook."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.house.imports import ROOT

_PLAN = """
import json, os, shutil, sys
from collections import Counter
from pathlib import Path
import qualgate.refmodel
from qualgate.config import load_gate_file
from qualgate.pipeline.plan import make_plan
gate = load_gate_file(Path(sys.argv[1]))
counts, folder = Counter(), str(qualgate.refmodel.PATH)
def seen(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, os.PathLike)) and os.fspath(arguments[0]).startswith(folder):
        counts[os.path.basename(arguments[0])] += 1
sys.addaudithook(seen)
make_plan(gate)
print(json.dumps(counts))
"""


def by_python() -> dict[str, int]:
    """File of the reference model → how often `make_plan` of the demo's gate file opens it."""
    with tempfile.TemporaryDirectory() as name:
        gate = Path(name) / "gate.yaml"
        shutil.copy(ROOT / "qualgate" / "refmodel" / "demo.yaml", gate)
        done = subprocess.run(
            [sys.executable, "-c", _PLAN, str(gate)], cwd=ROOT, capture_output=True, text=True, check=True
        )
    return json.loads(done.stdout)
