"""BFCL's multi-turn checker on transcripts, beside what `turns.correct` and `turns.state` say of the same calls.

python -m tests.verification.references.bfcl_turns BFCL [--write TRAJECTORIES.jsonl] [--each 8] [--entries 800]

BFCL: a folder that holds the package `bfcl_eval` with its data, a checkout's `berkeley-function-call-leaderboard`.
Nothing of it is kept here. Its simulated tools and its checker run in an interpreter of their own, without qualgate.

A transcript is the reference's calls with one change, or none. BFCL compares states and returns after each turn of the
user's; ours asks for the recorded calls in their order. So whatever ours calls right must be right for BFCL, and what
BFCL takes beyond that is counted by kind. `turns.state` runs the same tools in our sandbox, whole transcripts: it is to
say what BFCL says. With --write, the entries become a set: rows with `turns` whose results their tools gave, those left
out whose own schema refuses a call of the reference's, with the tools beside them.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qualgate.evalsets import read_turns
from qualgate.evalsets.simulation import Sources
from qualgate.sandbox import Sandbox, packages
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.state import BadSimulation, World, first_fault

CATEGORIES = ("multi_turn_base", "multi_turn_miss_param", "multi_turn_miss_func", "multi_turn_long_context")
MORE = "There are more tools now. Try it again."  # said where a turn asks for nothing: only its tools are new
KINDS = ("none", "drop", "twice", "swap", "value", "look", "early")
SOURCES = "bfcl_eval/eval_checker/multi_turn_eval/func_source_code"
MODULES = {
    "GorillaFileSystem": "gorilla_file_system", "MathAPI": "math_api", "MessageAPI": "message_api",
    "TwitterAPI": "posting_api", "TicketAPI": "ticket_api", "TradingBot": "trading_bot", "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}  # fmt: skip
STATELESS = ("MathAPI",)  # BFCL gives them no configuration, whatever an entry has
PACKAGES = ["mpmath"]  # that MathAPI imports
Turns = list[list[str]]  # of each turn of the user's, calls as Python source


def entries(bfcl: Path, category: str) -> Iterator[tuple[dict[str, Any], Turns]]:
    """What is asked, and the reference's calls. A turn without any is one in which nothing may be called."""
    data = bfcl / "bfcl_eval" / "data"
    asked, right = (
        [json.loads(line) for line in (folder / f"BFCL_v4_{category}.json").read_text().splitlines()]
        for folder in (data, data / "possible_answer")
    )
    answers = {one["id"]: one["ground_truth"] for one in right}
    return ((entry, answers[entry["id"]]) for entry in asked)


def tools_of(bfcl: Path, entry: dict[str, Any], files: dict[str, str]) -> list[dict[str, Any]]:
    folder = bfcl / "bfcl_eval" / "data" / "multi_turn_func_doc"
    lines = [line for name in entry["involved_classes"] for line in (folder / files[name]).read_text().splitlines()]
    left_out = set(entry.get("excluded_function", ()))
    return [{key: tool[key] for key in ("name", "description", "parameters")}
            for tool in map(json.loads, lines) if tool["name"] not in left_out]  # fmt: skip


def offered(entry: dict[str, Any], tools: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The tools of each turn: a few are held back until a later one."""
    until = {name: int(turn) for turn, names in entry.get("missed_function", {}).items() for name in names}
    return [[tool for tool in tools if until.get(tool["name"], 0) <= turn] for turn in range(len(entry["question"]))]


def parsed(source: str, tools: list[dict[str, Any]]) -> Call:
    """A call as Python source; arguments without a name get that of their place in the tool's parameters."""
    node = ast.parse(source, mode="eval").body
    assert isinstance(node, ast.Call)
    name = ast.unparse(node.func)
    names = next((list(tool["parameters"]["properties"]) for tool in tools if tool["name"] == name), [])
    given = dict(zip(names, map(ast.literal_eval, node.args), strict=False))
    return Call(name, given | {one.arg: ast.literal_eval(one.value) for one in node.keywords if one.arg})


def written(call: Call) -> str:
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})"


def changed(turns: list[list[Call]], kind: str, rng: random.Random) -> list[list[Call]] | None:
    """The transcript with one change of a kind at a place drawn; None where it has no such place."""
    made = copy.deepcopy(turns)
    least = 2 if kind in ("swap", "drop") else 1
    places = [place for place, calls in enumerate(made) if len(calls) >= least]
    if kind == "none":
        return made
    if not places:
        return None
    calls = made[rng.choice(places)]
    at = rng.randrange(len(calls) - (kind == "swap"))
    match kind:
        case "drop":
            del calls[at]
        case "twice":
            calls.insert(at, copy.deepcopy(calls[at]))
        case "swap":
            calls[at : at + 2] = calls[at + 1 : at - 1 : -1] if at else calls[1::-1]
        case "look":  # a call that reads and was not asked for: of the file system's, else the same again
            calls.insert(at, Call("pwd", {}))
        case "early":
            del calls[1:]
        case "value":
            texts = [key for key, value in calls[at].arguments.items() if isinstance(value, str | int | float)]
            if not texts:
                return None
            key = rng.choice(texts)
            value = calls[at].arguments[key]
            calls[at].arguments[key] = f"{value}x" if isinstance(value, str) else value + 1
    return made


def ours(tools: list[list[dict[str, Any]]], reference: list[list[Call]], transcript: list[list[Call]]) -> bool:
    """As a run asks it: action by action, each with the recorded ones before it, and no further one."""
    for known, wanted, made in zip(tools, reference, transcript, strict=True):
        if len(wanted) != len(made):
            return False
        for one, other in zip(wanted, made, strict=True):
            expected = [{"name": one.name, "arguments": one.arguments}]
            if not strict.judge(known, expected, (other,)).flags["tool_call.correct"]:
                return False
    return True


_CHECK = """
import json, sys
from bfcl_eval.constants.executable_backend_config import MULTI_TURN_FUNC_DOC_FILE_MAPPING
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import multi_turn_checker, multi_turn_irrelevance_checker
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call
print(json.dumps(MULTI_TURN_FUNC_DOC_FILE_MAPPING), flush=True)
for number, line in enumerate(sys.stdin):
    entry, truth, transcript = json.loads(line)
    if transcript is None:
        found = []
        for calls in truth:
            found.append(execute_multi_turn_func_call(calls, entry["initial_config"], entry["involved_classes"],
                         f"r{number}", entry["id"], long_context="long_context" in entry["id"])[0])
    else:
        steps = [[[call] for call in calls] for calls in transcript]
        name = f"m{number}"
        valid = multi_turn_checker(steps, truth, entry, "multi_turn", name)
        found = valid["valid"] and multi_turn_irrelevance_checker(steps, truth)["valid"]
    print(json.dumps(found), flush=True)
"""


def sources_of(bfcl: Path) -> Sources:
    """The modules of the simulated tools, as `simulation` of a set would have them."""
    names = sorted([*MODULES.values(), "long_context"])
    return tuple((f"{SOURCES}/{name}.py", (bfcl / SOURCES / f"{name}.py").read_text()) for name in names)


def state_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The entry's tools as a row's `state`."""
    names = {name: f"{SOURCES.replace('/', '.')}.{MODULES[name]}.{name}" for name in entry["involved_classes"]}
    initial = {names[name]: config for name, config in entry["initial_config"].items()
               if name in names and name not in STATELESS}  # fmt: skip
    long = {"long_context": True} if "long_context" in entry["id"] else {}
    return {"classes": [*names.values()], "initial": initial} | long


def plain(turns: list[list[Call]]) -> list[list[list[Any]]]:
    return [[[call.name, call.arguments] for call in turn] for turn in turns]


class Theirs:
    """BFCL's code, in its own interpreter."""

    def __init__(self, bfcl: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(bfcl)!r})\n{_CHECK}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"]}, cwd="/",
        )  # fmt: skip
        self.files: dict[str, str] = self._said()

    def asked(self, entry: dict[str, Any], truth: Turns, transcript: Turns | None) -> Any:
        """Whether a transcript is right; without one, what each of the reference's calls returns."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([entry, truth, transcript]) + "\n")
        self._child.stdin.flush()
        return self._said()

    def _said(self) -> Any:
        assert self._child.stdout is not None
        return json.loads(self._child.stdout.readline())

    def close(self) -> None:
        self._child.communicate()


def row_of(
    entry: dict[str, Any], tools: list[list[dict[str, Any]]], calls: list[list[Call]], results: Turns
) -> dict[str, Any]:
    """The entry as a row with `turns`: an action for each call. BFCL records no closing words: none are asked for.

    Categories ask some of the same questions: entries of one number share a cluster.
    """
    turns: list[dict[str, Any]] = []
    for said, known, before, made, gave in zip(entry["question"], tools, [[], *tools], calls, results, strict=False):
        new = [tool for tool in known if tool not in before] if turns else []
        first = {"user": "\n".join(one["content"] for one in said) or MORE} | ({"tools": new} if new else {})
        if not made:
            turns.append({**first, "expected_calls": [], "says": "That cannot be done with what there is."})
        for place, (call, result) in enumerate(zip(made, gave, strict=True)):
            turn = {"expected_calls": [{"name": call.name, "arguments": call.arguments}], "results": [result]}
            turns.append({**first, **turn} if not place else turn)
    cluster = f"entry_{entry['id'].rpartition('_')[2]}"
    row = {"id": entry["id"], "cluster": cluster, "max_new_tokens": 256, "tools": tools[0], "turns": turns}
    return row | {"state": state_of(entry)}


def write_set(bfcl: Path, rows: list[dict[str, Any]], write: Path) -> None:
    write.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    for path, text in sources_of(bfcl):
        file = write.with_name(f"{write.stem}_tools") / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    said = {"name": write.stem, "version": "1", "metrics": ["turns.correct", "turns.state"],
            "simulation": f"{write.stem}_tools", "packages": PACKAGES}  # fmt: skip
    write.with_suffix(".yaml").write_text(json.dumps(said, indent=1) + "\n")


def measure(bfcl: Path, each: int, write: Path | None, most: int, shard: tuple[int, int]) -> dict[str, Any]:
    """shard: (which, of how many) of the entries."""
    theirs, rng = Theirs(bfcl), random.Random(0)
    verdicts: dict[str, Counter[tuple[bool, bool]]] = {kind: Counter() for kind in KINDS}
    states: dict[str, Counter[tuple[bool, bool]]] = {kind: Counter() for kind in KINDS}
    differ: list[dict[str, Any]] = []
    nobody: list[dict[str, Any]] = []  # could be judged by ours
    sandbox, _ = packages.equipped(held, PACKAGES) if (held := Sandbox.best()) else (None, None)
    assert sandbox, "no sandbox holds on this machine: qualgate doctor"
    rows, unread = [], 0
    for category in CATEGORIES:
        for place, (entry, truth) in enumerate(entries(bfcl, category)):
            if place >= most / len(CATEGORIES) or place % shard[1] != shard[0]:
                continue  # a sample, or another process's
            world = World(sandbox, sources_of(bfcl), json.dumps(state_of(entry)))
            tools = tools_of(bfcl, entry, theirs.files)
            known = offered(entry, tools)
            try:
                reference = [[parsed(call, tools) for call in turn] for turn in truth]
            except (ValueError, SyntaxError, AssertionError):
                unread += 1
                continue
            if ours(known, reference, reference):
                rows.append(row_of(entry, known, reference, theirs.asked(entry, truth, None)))
            for kind in KINDS if each >= len(KINDS) else rng.sample(KINDS, each):
                if (transcript := changed(reference, kind, rng)) is not None:
                    said = theirs.asked(entry, truth, [[*map(written, turn)] for turn in transcript])
                    verdicts[kind][ours(known, reference, transcript), said] += 1
                    try:
                        fault = first_fault(world, plain(reference), plain(transcript))
                    except BadSimulation as error:
                        nobody.append({"id": entry["id"], "kind": kind, "bfcl": said, "why": str(error)})
                        continue
                    states[kind][fault is None, said] += 1
                    if (fault is None) != said:
                        differ.append({"id": entry["id"], "kind": kind, "bfcl": said, "fault": fault})
    theirs.close()
    if write is not None:
        write_set(bfcl, rows, write)
    refused = [faults for row in rows if (faults := read_turns(row)[1])]
    return {
        "entries": len(rows), "unread": unread, "refused": refused[:5], "turns": sum(len(row["turns"]) for row in rows),
        "turns.correct": {kind: table(found) for kind, found in verdicts.items()},
        "turns.state": {kind: table(found) for kind, found in states.items()}, "differ": differ, "null": nobody,
    }  # fmt: skip


def table(found: Counter[tuple[bool, bool]]) -> dict[str, int]:
    return {"both": found[True, True], "ours alone": found[True, False], "bfcl alone": found[False, True],
            "neither": found[False, False]}  # fmt: skip


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("bfcl", type=Path)
    asked.add_argument("--write", type=Path)
    asked.add_argument("--each", type=int, default=len(KINDS))
    asked.add_argument("--entries", type=int, default=800)
    asked.add_argument("--shard", type=int, nargs=2, default=(0, 1), metavar=("WHICH", "OF"))
    options = asked.parse_args()
    found = measure(options.bfcl.resolve(), options.each, options.write, options.entries, tuple(options.shard))
    print(json.dumps(found, indent=1))
