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

from qualgate.config import load_gate_file
from qualgate.pipeline.draft_compare import Tried, try_drafts
from qualgate.quant.model_folder import read_model_folder
from tests.benchmarks.questions import MODEL
from tests.benchmarks.shape import told
from tests.benchmarks.widened import LEAST, write_widened
from tests.engine.draft_heads.heads import save_eagle3, tiny_shape
from tests.verification.goals import COMBINATIONS

TASKS = ("arithmetic", "code", "reformat", "tool_calls")
INT4 = {"method": "int4", "group_size": 32}
MXFP4 = {"draft": {"quantize": "mxfp4"}, "tokens": 5}
UNDER = {"draft": {"quantize": "mxfp4", "under": {"draft": "ngram"}}, "tokens": 7}
NGRAM = {"draft": "ngram", "tokens": 5}
HEAD = "the head's folder"  # put in when it is there
EXACT = {  # arithmetic: float32
    "full target, MXFP4 draft": {"speculation": MXFP4},
    "full target, n-grams under MXFP4": {"speculation": UNDER},
    "int4 target, n-grams": {"quantize": INT4, "speculation": NGRAM},
    "int8 target, MXFP4 draft": {"quantize": "int8", "speculation": MXFP4},
    "fp8 target, EAGLE-3 head": {"quantize": "fp8", "speculation": {"draft": {"head": HEAD}, "tokens": 4}},
    "int8 target, KV int8, MXFP4 draft": {"quantize": "int8", "kv_cache": "int8", "speculation": MXFP4},
    "int8 target, KV fp8, n-grams under MXFP4": {"quantize": "int8", "kv_cache": "fp8", "speculation": UNDER},
}
SERVED = {  # arithmetic: served
    "served: full target, KV bf16, MXFP4 draft": {"kv_cache": "bf16", "speculation": MXFP4},
    "served: int4 target, KV int8, n-grams": {"quantize": INT4, "kv_cache": "int8", "speculation": NGRAM},
}
FULL, QUICK = 10, 1  # cases of each task


def run(quick: bool) -> dict[str, Any]:
    """Nine combinations: some 20 minutes of two idle cores; quick: one minute."""
    cases = QUICK if quick else FULL
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work) / "model"
        write_widened(Path(MODEL), folder, 1 if quick else LEAST)
        head = _head(folder, Path(work))
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


def _head(folder: Path, work: Path) -> Path:
    """A head of random numbers, of the target's sizes."""
    config = read_model_folder(folder).files.config
    shape = tiny_shape(width=config["hidden_size"], vocabulary=config["vocab_size"])
    return save_eagle3(work / "head", shape=shape, reads=[1])


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
