"""Read NeMo Evaluator's bundles: `eval-….json` with `results.jsonl`, and `inference_log.jsonl` where it was kept.

A failed request is a reward of 0 with `scoring_details.error`; how an answer ended stands in the inference log alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.harnesses.containers import choose, files_in, read_json
from qualgate.intake.harnesses.fields import mapping, number, shown, text, whole
from qualgate.intake.harnesses.log import Choice, Run, Sample
from qualgate.intake.harnesses.probe import Probe
from qualgate.intake.harnesses.rows import Samples, reader
from qualgate.intake.harnesses.summary import Tally, miscounted
from qualgate.intake.jsonl import read_objects

RESULTS, INFERENCE = "results.jsonl", "inference_log.jsonl"
SCORER = "scorer:"
OF_THE_MODEL = ("model", "model_url", "model_id", "benchmark", "shard", "shard_range", "services", "output_dir")


def recognise(probe: Probe) -> bool:
    """Whether the path is a bundle, its results, or a folder that holds both."""
    if probe.names:
        return any(Path(name).name == RESULTS for name in probe.names) and any(map(_is_bundle, probe.names))
    if {"problem_idx", "reward", "model_response"} <= probe.keys:
        return True
    return probe.says('"run_id"', '"sdk_version"', '"benchmark"', '"config_hash"')


def _is_bundle(name: str) -> bool:
    return Path(name).name.startswith("eval-") and name.endswith(".json")


@reader
def read(path: Path, choice: Choice, tally: Tally) -> Samples:
    """Read a bundle. UsageError for several benchmarks of which none is chosen."""
    path, body = _bundle(path, choice)
    results, endings = path.with_name(RESULTS), _endings(path.with_name(INFERENCE))
    for line, row in read_objects(results):
        where, key = f"{results}:{line}", _key(row)
        if key[0] is None or key[1] is None:
            raise UsageError(f"{where}: no result of NeMo Evaluator, which has `problem_idx` and `repeat`")
        details, extracted = mapping(row.get("scoring_details")), row.get("extracted_answer", "…")
        finish, tokens = endings.get(key, ("", None))
        category = text(mapping(row.get("metadata")).get("category"))
        error = _error(details)
        answer = row.get("model_response")
        yield Sample(
            id=str(key[0]),
            where=where,
            line=line,
            repeat=key[1],
            question=row.get("prompt"),
            target=text(row.get("expected_answer")),
            text=answer if isinstance(answer, str) else None,
            calls=bool(row.get("trajectory")),
            extracted=""
            if extracted is None
            else extracted
            if isinstance(extracted, str) and extracted != "…"
            else None,
            tokens=tokens,
            finish=finish,
            error=error,
            values={} if error else _values(row, details),
            labels=(f"tag:{category}",) if category else (),
        )
    benchmark, config = mapping(body.get("benchmark")), mapping(body.get("config"))
    return Run(
        path=results,
        task=text(benchmark.get("name")),
        model=text(config.get("model")),
        settings={key: shown(value) for key, value in config.items() if key not in OF_THE_MODEL and value is not None}
        | {"NeMo Evaluator's version": shown(body.get("sdk_version"))},
        faults=tuple(_faults(path, body, benchmark, tally)),
        notes=() if endings else (f"{path}: no {INFERENCE} beside it, so nothing says which answers were cut",),
    )


def _bundle(path: Path, choice: Choice) -> tuple[Path, Mapping[str, Any]]:
    """The bundle at a path, or the only one of a folder for the chosen benchmark."""
    folder, names = path if path.is_dir() else path.parent, (path.name,)
    if path.is_dir() or path.name == RESULTS:
        names = tuple(
            name for name in files_in(folder, ".json") if _is_bundle(name) and (path.is_dir() or "/" not in name)
        )
    bundles = {name: mapping(read_json(folder / name)) for name in names}
    found = {
        name: ((text(mapping(body["benchmark"]).get("name")),), text(mapping(body.get("config")).get("model")))
        for name, body in bundles.items()
        if "benchmark" in body
    }
    chosen = choose(folder, found, choice, "bundles (eval-….json)")
    return chosen, bundles[chosen.relative_to(folder).as_posix()]


def _endings(path: Path) -> dict[tuple[Any, Any], tuple[str, int | None]]:
    """(problem, repeat) → how its answer ended and its tokens; {} without an inference log."""
    if not path.is_file():
        return {}
    return {
        (_key(body)): (text(body.get("finish_reason")), whole(body.get("completion_tokens")) or None)
        for _, body in read_objects(path)
        if body.get("_type") != "meta"
    }


def _key(body: Mapping[str, Any]) -> tuple[int | None, int | None]:
    return whole(body.get("problem_idx")), whole(body.get("repeat"))


NO_ANSWER_READ = re.compile(r"no .{0,30}(answer|match|code)|(extract|parse)|empty|not found", re.IGNORECASE)


def _values(body: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, float | None]:
    """The reward, and each further scorer's; None where the judge or the scorer failed."""
    judge = mapping(details.get("judge"))
    unscored = judge.get("error") or (details.get("error") and not NO_ANSWER_READ.search(str(details["error"])))
    values = {"reward": None if unscored else number(body.get("reward"))}
    for name, scored in details.items():
        if name.startswith(SCORER):
            failed = mapping(scored).get("error")
            values[name.removeprefix(SCORER)] = None if failed else number(mapping(scored).get("reward"))
    return values


def _error(details: Mapping[str, Any]) -> str:
    """What failed, as the harness says. A scorer that read no answer gives no error here."""
    if details.get("error") and (details.get("error_category") or details.get("method") == "solve_failed"):
        return f"NeMo Evaluator logged an error: {str(details['error'])[:300]}"
    return ""


def _faults(path: Path, body: Mapping[str, Any], benchmark: Mapping[str, Any], tally: Tally) -> Iterator[str]:
    """Say where the bundle and its results differ. Its mean counts failed requests as 0."""
    yield from miscounted(path, "NeMo Evaluator", "results", body.get("n_results"), tally.samples)
    scores = mapping(benchmark.get("scores"))
    stated = mapping(scores.get("summary")).get("mean")
    if tally.samples and stated is not None:
        mean = round(tally.total("reward") / tally.samples, 6)
        yield from miscounted(path, "NeMo Evaluator", "as the mean reward", _rounded(stated), mean)
    shuffle = mapping(mapping(body.get("config")).get("shuffle"))
    ends = mapping(body.get("config")).get("shard_range")
    if isinstance(ends, list):
        yield f"{path}: these are the results of one shard ({shown(ends)}); merge them: nel eval merge"
    else:
        yield from miscounted(
            path, "NeMo Evaluator", "problems", shuffle.get("ds_effective_size"), whole(benchmark.get("samples")) or 0
        )


def _rounded(value: Any) -> Any:
    return round(value, 6) if isinstance(value, float) else value
