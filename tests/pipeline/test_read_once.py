"""Planning opens no file of a model or an evalset twice, however many arms are made of it."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copytree

import pytest

from qualgate.config import load_gate_file
from qualgate.pipeline.plan import make_plan
from qualgate.refmodel import PATH

DEMO = Path(__file__).resolve().parents[2] / "qualgate" / "refmodel" / "demo.yaml"
FILES = sorted(path.name for path in PATH.iterdir() if path.name != "README.md")
COUNTED = """
import json, sys
from collections import Counter
from pathlib import Path
from qualgate.config import load_gate_file
from qualgate.pipeline.plan import make_plan

counts = Counter()
gate = load_gate_file(Path(sys.argv[1]))
sys.addaudithook(lambda event, what: counts.update([str(what[0])]) if event == "open" else None)
make_plan(gate)
print(json.dumps(counts))
"""


def test_a_plan_of_the_demo_opens_every_file_once():
    done = subprocess.run([sys.executable, "-c", COUNTED, str(DEMO)], capture_output=True, text=True, check=True)
    opened = {
        Path(file).name: times
        for file, times in json.loads(done.stdout).items()
        if file.endswith((".json", ".jsonl", ".yaml", ".safetensors", ".jinja")) and "site-packages" not in file
    }
    sets = ("arithmetic", "code", "grounded_qa", "json_extract", "reformat", "tool_calls", "transform")
    read = set(FILES) | {f"{name}.{end}" for name in sets for end in ("yaml", "jsonl")}
    assert opened == dict.fromkeys(read, 1)


@contextmanager
def opens_of(folder: Path) -> Iterator[Counter[str]]:
    """How often anyone, compiled libraries too, opens each file of `folder`; counted when the block ends."""
    system = ctypes.CDLL(None)
    watch = system.inotify_init()
    opened, closed = 0x20, 0x10 | 0x8  # closing tells two openings apart: equal events in a row are reported as one
    system.inotify_add_watch(watch, os.fsencode(folder), opened | closed)
    found: Counter[str] = Counter()
    yield found
    events, place = os.read(watch, 2**20), 0
    os.close(watch)
    while place < len(events):
        _, kind, _, length = struct.unpack_from("iIII", events, place)
        name = events[place + 16 : place + 16 + length].rstrip(b"\0").decode()
        found.update([name] if name and kind & opened else [])
        place += 16 + length


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_no_compiled_library_opens_a_models_file_again(tmp_path):
    copytree(PATH, tmp_path / "model")
    (tmp_path / "gate.yaml").write_text(DEMO.read_text().replace("model: reference", "model: ./model"))
    gate = load_gate_file(tmp_path / "gate.yaml")
    with opens_of(tmp_path / "model") as opened:
        make_plan(gate)
    assert opened == dict.fromkeys(FILES, 1)
