"""Planning opens no file of a model or an evalset twice, however many arms are made of it."""

from __future__ import annotations

import ctypes
import os
import struct
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

ROOT = Path(__file__).resolve().parents[2]
SETS = ("arithmetic", "code", "grounded_qa", "json_extract", "reformat", "tool_calls", "transform")


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
def test_a_plan_of_the_demo_opens_every_file_of_its_model_and_sets_once(tmp_path):
    copytree(PATH, tmp_path / "model")
    sets = tmp_path / "sets"
    sets.mkdir()
    for name in (f"{name}.{end}" for name in SETS for end in ("yaml", "jsonl")):
        (sets / name).write_bytes((ROOT / "evalsets" / name).read_bytes())
    text = (ROOT / "qualgate" / "refmodel" / "demo.yaml").read_text().replace("model: reference", "model: ./model")
    start = text.index("evalsets:")
    named = ", ".join(f"./sets/{name}.yaml" for name in SETS)
    text = text[:start] + f"evalsets: [{named}]\n" + text[text.index("\n", start) + 1 :]
    (tmp_path / "gate.yaml").write_text(text)
    gate = load_gate_file(tmp_path / "gate.yaml")
    with opens_of(tmp_path / "model") as opened, opens_of(sets) as read:
        make_plan(gate)
    assert opened == dict.fromkeys((path.name for path in PATH.iterdir() if path.name != "README.md"), 1)
    assert read == dict.fromkeys((path.name for path in sets.iterdir()), 1)
