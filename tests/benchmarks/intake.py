"""Benchmark `intake`: seconds and memory of `qualgate intake` over two large result files of a format."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qualgate.errors import InfrastructureError
from tests.benchmarks.goals import INTAKE
from tests.benchmarks.memory import measure
from tests.benchmarks.shape import told

ROWS, QUICK_ROWS = 1_000_000, 100_000  # of each side
RIGHT, FLIPPED = 0.8, 0.02  # share of right answers, and of those that differ between the sides
MOST_SECONDS, MOST_MIB = 60, 1024
WORDS = (
    "the sum",
    "of both parts",
    "is larger than each",
    "so we add them",
    "step by step",
    "then check",
    "what we found",
)


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """A whole process for each format, on files that were written before; quick: of a tenth of the rows."""
    size, rounds = QUICK_ROWS if quick else ROWS, list[dict[str, Any]]()
    for format in told("intake", [id for id in INTAKE.goals if not only or id in only]):
        with tempfile.TemporaryDirectory() as name:
            rounds.append({"format": format, "rows": size, **measured(format, size, Path(name))})
    rows = {
        each["format"]: INTAKE.row(
            each["format"],
            [each["seconds"], each["peak_mib"]],
            met=each["seconds"] <= MOST_SECONDS and each["peak_mib"] <= MOST_MIB,
        )
        for each in rounds
    }
    every = [rows.get(id) or INTAKE.not_run(id, "not asked for") for id in INTAKE.goals]
    return INTAKE.result(rounds=rounds, rows=every, few=f"{size:,} rows" if quick else None)


def measured(format: str, rows: int, folder: Path) -> dict[str, Any]:
    """Seconds, MiB and exit code of one comparison. rows: of each side."""
    sides = []
    for side in ("base", "variant"):
        (folder / side).mkdir()
        sides.append(WRITERS[format](folder / side, side, rows))
    done = measure([sys.executable, "-m", "qualgate", "intake", *map(str, sides), "--json"], interval=0.1)
    if not done.output.startswith("{"):
        raise InfrastructureError(f"qualgate intake ended with {done.exit} on {format}")
    return {"seconds": round(done.seconds, 2), "peak_mib": done.peak_pss >> 20, "exit": done.exit}


def answers(side: str, rows: int) -> Iterator[tuple[int, str, str, bool]]:
    """Yield (number, question, answer, whether it is right): questions of a line, answers of a few lines."""
    for number in range(rows):
        rng = random.Random(number)
        right = rng.random() < RIGHT
        if rng.random() < FLIPPED and side != "base":
            right = not right
        thought = " ".join(rng.choices(WORDS, k=14))
        result = 2 * number if right else 2 * number + 1
        yield number, f"What is {number} + {number}?", f"I think that {thought}.\nThe answer is {result}.", right


def _lines(path: Path, bodies: Iterator[Mapping[str, Any]]) -> Path:
    with path.open("w") as file:
        file.writelines(json.dumps(body) + "\n" for body in bodies)
    return path


def table(folder: Path, side: str, rows: int) -> Path:
    return _lines(
        folder / "results.jsonl",
        (
            {"id": f"q{n}", "question": asked, "answer": text, "target": str(2 * n), "score": int(right), "model": side}
            for n, asked, text, right in answers(side, rows)
        ),
    )


def lm_eval(folder: Path, side: str, rows: int) -> Path:
    results = {"model_name": side, "n-samples": {"sums": {"effective": rows}}}
    (folder / "results_2026-11-21T10-20-30.123456.json").write_text(json.dumps(results))
    return _lines(
        folder / "samples_sums_2026-11-21T10-20-30.123456.jsonl",
        (
            {"doc_id": n, "doc": {"question": asked, "answer": str(2 * n)}, "target": str(2 * n),
             "arguments": {"gen_args_0": {"arg_0": asked, "arg_1": {"until": ["\n\n"], "do_sample": False}}},
             "resps": [[text]], "filtered_resps": [text.split()[-1][:-1]], "filter": "none",
             "metrics": ["exact_match"], "doc_hash": f"{n:064x}", "prompt_hash": f"{n:064x}",
             "target_hash": f"{2 * n:064x}", "exact_match": float(right)}
            for n, asked, text, right in answers(side, rows)
        ),
    )  # fmt: skip


def inspect(folder: Path, side: str, rows: int) -> Path:
    path = folder / "log.eval"
    spec = {"task": "sums", "task_id": "t", "model": side, "dataset": {}, "scorers": [{"name": "match"}]}
    header = {"status": "success", "eval": spec, "results": {"total_samples": rows, "completed_samples": rows}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("_journal/start.json", "{}")
        for n, asked, text, right in answers(side, rows):
            said = {"role": "assistant", "content": text, "source": "generate"}
            body = {"id": f"q{n}", "epoch": 1, "input": asked, "target": str(2 * n),
                    "messages": [{"role": "user", "content": asked}, said],
                    "output": {"choices": [{"message": said, "stop_reason": "stop"}], "usage": {"output_tokens": 50}},
                    "scores": {"match": {"value": "C" if right else "I", "answer": text.split()[-1]}}}  # fmt: skip
            archive.writestr(f"samples/q{n}_epoch_1.json", json.dumps(body))
        archive.writestr("header.json", json.dumps(header))
    return path


def promptfoo(folder: Path, side: str, rows: int) -> Path:
    path = folder / "results.json"
    prompts = [{"raw": "What is {{n}} + {{n}}?", "label": "p", "provider": side}]
    with path.open("w") as file:
        file.write(f'{{"evalId": "e", "results": {{"version": 3, "prompts": {json.dumps(prompts)}, "results": [')
        for n, asked, text, right in answers(side, rows):
            rule = {"type": "contains", "value": str(2 * n)}
            part = {"pass": right, "score": float(right), "reason": "", "assertion": rule}
            body = {"promptIdx": 0, "testIdx": n, "provider": {"id": side, "label": side}, "vars": {"n": n},
                    "prompt": {"raw": asked, "label": "p"}, "success": right, "score": float(right),
                    "failureReason": 1 - right, "testCase": {"vars": {"n": n}, "assert": [rule], "options": {}},
                    "response": {"output": text, "tokenUsage": {"completion": 50}, "finishReason": "stop"},
                    "gradingResult": {"componentResults": [part]}}  # fmt: skip
            file.write(",\n" * bool(n) + json.dumps(body))
        file.write(']}, "config": {"description": "sums", "providers": []}}')
    return path


def lighteval(folder: Path, side: str, rows: int) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, writer, batch = folder / "details_sums|0_2026-12-01T10-13-14.630285.parquet", None, []
    general = {
        "config_general": {"model_name": side},
        "results": {"sums|0": {"em": RIGHT}},
        "config_tasks": {"sums|0": {}},
    }
    (folder / "results_2026-12-01T10-13-14.630285.json").write_text(json.dumps(general))
    for n, asked, text, right in answers(side, rows):
        doc = {"id": str(n), "query": asked, "choices": [str(2 * n)], "gold_index": [0], "generation_size": 256}
        response = {"input": asked, "text": [text], "output_tokens": [[1] * 50]}
        batch.append({"doc": doc, "metric": {"em": float(right)}, "model_response": response})
        if len(batch) == 10_000 or n == rows - 1:
            piece = pa.Table.from_pylist(batch)
            writer = writer or pq.ParquetWriter(path, piece.schema)
            writer.write_table(piece)
            batch = []
    if writer is not None:
        writer.close()
    return path


WRITERS: Mapping[str, Callable[[Path, str, int], Path]] = {
    "table": table, "lm-eval": lm_eval, "inspect": inspect, "promptfoo": promptfoo, "lighteval": lighteval,
}  # fmt: skip
