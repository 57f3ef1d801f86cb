"""Benchmark `combinations`: what speculates may be quantized, hold keys and values in fewer bits or both: no answer
changes, and what each combination accepts and gains is told.

Each is a variant of a gate file, tried as `qualgate draft compare` tries it: every prompt answered plainly, drafted and
plainly again, in turns, one sequence at a time. The target is the reference model widened (`bench.widened`): its
answers, in weights that no cache holds.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.bench.questions import MODEL
from qualgate.bench.shape import told
from qualgate.bench.widened import LEAST, write_widened
from qualgate.config import load_gate_file
from qualgate.engine.draft_heads.making import HeadOrder, train_head
from qualgate.engine.draft_heads.training import Lessons
from qualgate.pipeline.draft_trial import Tried, try_drafts
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Case
from tests.verification.goals import COMBINATIONS

TASKS = ("arithmetic", "code", "reformat", "tool_calls")
INT4 = {"method": "int4", "group_size": 32}
MXFP4 = {"draft": {"quantize": "mxfp4"}, "tokens": 5}
UNDER = {"draft": {"quantize": "mxfp4", "under": {"draft": "ngram"}}, "tokens": 7}
NGRAM = {"draft": "ngram", "tokens": 5}
HEAD = "the head's folder"  # put in when it was trained
EXACT = {  # arithmetic: float32
    "full target, MXFP4 draft": {"speculation": MXFP4},
    "full target, n-grams under MXFP4": {"speculation": UNDER},
    "int4 target, n-grams": {"quantize": INT4, "speculation": NGRAM},
    "int8 target, MXFP4 draft": {"quantize": "int8", "speculation": MXFP4},
    "int8 target, its high bits": {"quantize": "int8", "speculation": {"draft": {"high_bits": 4}, "tokens": 5}},
    "fp8 target, head": {"quantize": "fp8", "speculation": {"draft": {"head": HEAD}, "tokens": 4}},
    "int8 target, KV int8, MXFP4 draft": {"quantize": "int8", "kv_cache": "int8", "speculation": MXFP4},
    "int8 target, KV fp8, n-grams under MXFP4": {"quantize": "int8", "kv_cache": "fp8", "speculation": UNDER},
}
SERVED = {  # arithmetic: served
    "served: full target, KV bf16, MXFP4 draft": {"kv_cache": "bf16", "speculation": MXFP4},
    "served: int4 target, KV int8, n-grams": {"quantize": INT4, "kv_cache": "int8", "speculation": NGRAM},
}
LEARNED_FROM = 300  # place of the first case that the head learns on: none that is tried

# Cases of each task, of those that a head learns on, and its steps.
FULL, QUICK = (10, 30, 200), (1, 3, 8)


def run(quick: bool) -> dict[str, Any]:
    """Ten combinations: some 20 minutes of two idle cores; quick: one minute."""
    cases, lessons, steps = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        write_widened(Path(MODEL), folder, 1 if quick else LEAST)
        head = _head(folder, Path(work), lessons, steps)
        tried = {
            **dict(_tried(folder, "float32", EXACT, head, cases)),
            **dict(_tried(folder, "served", SERVED, head, cases)),
        }
    few = f"{cases} cases a task" if quick else None
    unlike = {name: one.unlike for name, one in tried.items()}
    answers = sum(one.prompts for one in tried.values())
    whole = len(tried) == len(EXACT) + len(SERVED) and all(one.prompts == 4 * cases for one in tried.values())
    return COMBINATIONS.result(
        rounds=[{"combination": name} | one.as_json() for name, one in tried.items()],
        rows=[
            COMBINATIONS.row("combined.answers", sum(unlike.values()), met=whole and not any(unlike.values()))
            | {"answers": answers, "unlike": unlike},
            COMBINATIONS.row("combined.gains", {name: _shown(one) for name, one in tried.items()}, met=whole, few=few),
        ],
    )


def _shown(one: Tried) -> dict[str, Any]:
    level, gain = one.found.levels[0], one.found.gain.measured
    return {
        "accepted_of_proposed": level.acceptance_rate.value,
        "tokens_a_verification": level.tokens_per_verification_with_bonus.value,
        "gain": gain.value,
        "interval": [gain.lower, gain.upper],
        "plain_again": one.again.value,
        "bytes": one.found.memory,
    }


def _cases(first: int, count: int) -> list[Case]:
    return [case for name in TASKS for case in evalsets.load(name, Path.cwd()).cases[first : first + count]]


def _head(folder: Path, work: Path, cases: int, steps: int) -> Path:
    """A head that learned the fp8 target's states."""
    target = ArmSpec(name="target", model=str(folder), quantize=parse_recipe("fp8"))
    lessons = Lessons(tokens=4, steps=steps)
    order = HeadOrder(target=target, cases=_cases(LEARNED_FROM, cases), out=work / "head", lessons=lessons)
    return train_head(order, work / "cache", lambda *_: None).folder


def _tried(
    folder: Path, arithmetic: str, variants: dict[str, Any], head: Path, cases: int
) -> Iterator[tuple[str, Tried]]:
    """Each combination, by name."""
    names = {f"v{at}": name for at, name in enumerate(variants)}
    body = {
        "version": 1,
        "baseline": {"model": str(folder)},
        "arithmetic": arithmetic,
        "variants": dict(zip(names, variants.values(), strict=True)),
        "evalsets": list(TASKS),
        "gate": {"rules": [{"metric": "exact_match", "max_drop": 0.1}]},
    }
    gate = folder.parent / f"{arithmetic}.yaml"
    gate.write_text(json.dumps(body).replace(HEAD, str(head)), encoding="utf-8")
    tried = try_drafts(load_gate_file(gate), cases, folder.parent / "cache", lambda *_: None)
    for name in told("combinations", list(names.values())):
        one = next(tried)
        assert names[one.name] == name, "in the order of the file"
        yield name, one
