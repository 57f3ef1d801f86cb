"""Benchmark `decode`: how fast exact answers come, against those who generate for evaluations today.

Contenders answer the same cases of the shipped sets in turns, so that a busy machine slows all alike; the ratio of wall
seconds counts, that of CPU seconds stands beside it. Ours are whole jobs as a run's worker does them: a drafted one
reads what its baseline left, measures the drift from it and tells log-probs, which no peer is asked for. Peers get
the same numbers as plain modules and their best batch size for each kind of answer, found before. Answers are compared:
work that differs in more than 1 % of the cases (of the arithmetic that vLLM has for packed weights, 5 %) meets no goal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from qualgate.engine.loaded import LoadedArm
from qualgate.records import Prompt
from tests.benchmarks import harnesses, ours, peaks, peers, vllm_peer
from tests.benchmarks.goals import DECODE
from tests.benchmarks.questions import MODEL, asked
from tests.benchmarks.race import MOST_UNLIKE, Contender, Round, Standing, best_sizes, race, shown, standing
from tests.benchmarks.steps import Steps, steps

RECIPES: dict[str, Any] = {"int8": "int8", "int4": {"method": "int4", "group_size": 32}}
AT_LEAST = {
    "drafted_int8": 8.0, "drafted_int4": 6.0, "lm_eval_int8": 9.0, "lm_eval_int4": 7.0, "plain": 3.5,
    "vllm_plain": 1.2, "vllm_int8": 2.5, "vllm_int4": 2.2, "choices": 3.0,
}  # fmt: skip
AT_MOST = {"step_1": 1.5, "step_64": 3.0}
OF_GENERATE, OF_FILE = 0.7, 1.1
OF_STEPS = 3  # rounds to one of the others: they are short, and whoever else runs is heard in each
PACKED_UNLIKE = 0.05  # vLLM multiplies packed weights in bfloat16
VLLM_FOLDERS = {
    "vllm_int8": {"method": "smoothquant", "calibration": "calibration"},
    "vllm_int4": {"method": "gptq", "bits": "4", "group_size": "32", "calibration": "calibration"},
}

Found = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # rounds and rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured. rows: of the process whose memory is measured."""

    per_set: int
    questions: int
    rounds: int
    sizes: tuple[int, ...]
    rows: int


FULL = Size(per_set=64, questions=16, rounds=5, sizes=peers.SIZES, rows=32)
QUICK = Size(per_set=4, questions=3, rounds=2, sizes=(8, 16), rows=16)


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """All rows, or those of `only`. About 45 minutes of two idle cores, and 10 with vLLM; quick: 2 minutes without."""
    return measured(QUICK if quick else FULL, only)


def measured(size: Size, only: Sequence[str] = ()) -> dict[str, Any]:
    """The result of so much measuring."""
    few = None if size == FULL else f"{size.rounds} rounds of {7 * size.per_set} cases"
    with tempfile.TemporaryDirectory() as work:
        ground = Ground(Path(work), size)
        parts = {id: partial(measure, ground) for id, measure in _parts().items()}
        rounds, rows = vllm_peer.measured_rows(DECODE, parts, only, _missing)
        about = {"threads": torch.get_num_threads(), "best_batch": ground.best, "vllm": ground.vllm}
    return DECODE.result(rounds=[about, *rounds], rows=rows, few=few)


def _parts() -> dict[str, Callable[..., Any]]:
    return {
        "drafted_int8": _drafted,
        "drafted_int4": _drafted,
        "lm_eval_int8": _lm_eval,
        "lm_eval_int4": _lm_eval,
        "plain": _plain,
        "vllm_plain": _vllm_plain,
        "vllm_int8": _vllm_packed,
        "vllm_int4": _vllm_packed,
        "step_1": _steps,
        "step_64": _steps,
        "choices": _choices,
        "memory": _memory,
    }


def _missing(id: str) -> str:
    if id.startswith("vllm"):
        return vllm_peer.missing()
    return harnesses.missing() if id.startswith("lm_eval") or id == "choices" else ""


class Ground:
    """What several rows are measured with, made when it is first asked for. best: sizes by peer and kind."""

    def __init__(self, work: Path, size: Size) -> None:
        self.work, self.size = work, size
        self.best: dict[str, dict[str, int]] = {}
        self.vllm = ""  # its version
        self._arms: dict[str, LoadedArm] = {}
        self._peers: dict[str, tuple[Path, Any]] = {}

    @cached_property
    def prompts(self) -> dict[str, list[Prompt]]:
        """The cases of each kind."""
        return asked(self.size.per_set)

    @cached_property
    def baseline(self) -> LoadedArm:
        """The reference model in bfloat16."""
        return ours.load("baseline", MODEL, self.work / "cache")

    def artifacts(self, id: str, *, of_tasks: bool = False) -> Path:
        """A copy of what the baseline's jobs left, for the variant of one row: it finds no other's answers there."""
        left = self._left_of_tasks if of_tasks else self._left
        return Path(shutil.copytree(left, self.work / id / left.name))

    @cached_property
    def _left(self) -> Path:
        ours.leave_answers(self.baseline, self.prompts, self.work / "artifacts")
        return self.work / "artifacts"

    @cached_property
    def _left_of_tasks(self) -> Path:
        ours.leave_answers(self.baseline, self.tasks, self.work / "tasks")
        return self.work / "tasks"

    @cached_property
    def tasks(self) -> dict[str, list[Prompt]]:
        """The cases as lm-eval asks them."""
        return harnesses.contexts(self.baseline.tokenizer, self.prompts)

    def variant(self, name: str) -> LoadedArm:
        """One of RECIPES."""
        if name not in self._arms:
            self._arms[name] = ours.load(name, MODEL, self.work / "cache", RECIPES[name])
        return self._arms[name]

    def dequantized(self, name: str) -> tuple[Path, Any]:
        """(folder, model of transformers) of one of RECIPES, or of the baseline."""
        if name not in self._peers:
            folder = peers.write_dequantized(MODEL, RECIPES.get(name), self.work / "cache", self.work / f"plain-{name}")
            self._peers[name] = folder, peers.load_transformers(folder)
        return self._peers[name]

    def transformers(self, name: str) -> peers.Transformers:
        """transformers with the cases and a model of those."""
        return peers.Transformers(self.dequantized(name)[1], self.baseline.stop_ids, self.prompts)

    def at_best(self, way: str, answer: Callable[[str, int], Sequence[Any]], counts: dict[str, int]) -> Contender:
        """`answer` at the sizes that are best of `way`: looked for once, since all models have one shape."""
        if way not in self.best:
            self.best[way] = best_sizes(answer, counts, self.size.sizes)
        best = self.best[way]
        return Contender(answer=lambda kind: answer(kind, best[kind]))

    def race(self, id: str, contenders: dict[str, Contender]) -> list[Round]:
        """Rounds over all kinds."""
        return race(f"decode, {id}", contenders, list(self.prompts), self.size.rounds)


def _row(id: str, stood: Standing, *, unlike: float = MOST_UNLIKE, **more: Any) -> dict[str, Any]:
    met = stood.ratio >= AT_LEAST[id] and stood.unlike <= unlike * stood.cases
    spread = [min(stood.ratios), max(stood.ratios)]
    return DECODE.row(id, stood.ratio, met=met, spread=spread) | stood.shown | more


def _drafted(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    name = id.removeprefix("drafted_")
    peer = ground.transformers(name)
    contenders = {
        "ours": ours.drafted(ground.variant(name), ground.prompts, ground.artifacts(id)),
        "generate": ground.at_best("generate", peer.generate, peer.counts),
    }
    rounds = ground.race(id, contenders)
    return shown(id, rounds), _row(id, standing(rounds, "ours", "generate"))


def _plain(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    peer = ground.transformers("baseline")
    contenders = {
        "ours": ours.plain(ground.baseline, ground.prompts),
        "generate": ground.at_best("generate", peer.generate, peer.counts),
        "generate_batch": ground.at_best("generate_batch", peer.generate_batch, peer.counts),
    }
    rounds = ground.race(id, contenders)
    stood = {name: standing(rounds, "ours", name) for name in ("generate", "generate_batch")}
    faster = min(stood, key=lambda name: stood[name].ratio)
    others = {name: one.ratio for name, one in stood.items()}
    return shown(id, rounds), _row(id, stood[faster], faster=faster, against=others)


def _lm_eval(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Ours is the job of a run whose evalset is such a task; beside it our model behind lm-eval's own loop, which
    knows no baseline and drafts nothing."""
    name = id.removeprefix("lm_eval_")
    folder, model = ground.dequantized(name)
    asked_of = harnesses.generations(ground.baseline.tokenizer, ground.tasks)
    hf = harnesses.Hf(model, folder)
    plug = harnesses.plug(RECIPES[name], ground.work / "cache")
    counts = {kind: len(mine) for kind, mine in asked_of.items()}
    contenders = {
        "ours": ours.drafted_texts(ground.variant(name), ground.tasks, ground.artifacts(id, of_tasks=True)),
        "plug": Contender(answer=lambda kind: plug.generate_until(asked_of[kind])),
        "hf": ground.at_best("hf", lambda kind, size: hf.texts(asked_of[kind], size), counts),
    }
    rounds = ground.race(id, contenders)
    plugged = standing(rounds, "plug", "hf")
    return shown(id, rounds), _row(id, standing(rounds, "ours", "hf"), plugged_in=plugged.ratio)


def _choices(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    folder, model = ground.dequantized("baseline")
    asked_of = harnesses.choices(ground.size.questions)
    hf, plug = harnesses.Hf(model, folder), harnesses.plug(None, ground.work / "cache")
    counts = {kind: len(mine) for kind, mine in asked_of.items()}

    def weighed(kind: str, size: int) -> list[int]:
        return harnesses.chosen(hf.weighed(asked_of[kind], size))

    contenders = {
        "ours": Contender(answer=lambda kind: harnesses.chosen(plug.loglikelihood(asked_of[kind]))),
        "hf": ground.at_best("hf's choices", weighed, counts),
    }
    rounds = ground.race(id, contenders)
    return _counted(id, rounds), _row(id, standing(rounds, "ours", "hf"), unlike=0.0)


def _counted(id: str, rounds: Sequence[Round]) -> list[dict[str, Any]]:
    texts = [
        {
            kind: {name: asdict(turn) | {"said": len(turn.said)} for name, turn in turns.items()}
            for kind, turns in one.items()
        }
        for one in rounds
    ]
    return [{"race": id, **one} for one in texts]


def _vllm_plain(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    folder, _ = ground.dequantized("baseline")
    with vllm_peer.serving(folder, "float32", ground.prompts, ground.work) as vllm:
        ground.vllm = vllm.version
        rounds = ground.race(id, {"ours": ours.plain(ground.baseline, ground.prompts), "vllm": vllm.contender})
    return shown(id, rounds), _row(id, standing(rounds, "ours", "vllm"))


def _vllm_packed(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    folder = vllm_peer.quantized_folder(ground.work / f"{id}-folder", **VLLM_FOLDERS[id])
    arm = ours.load(id, folder, ground.work / "cache")
    mine = ours.drafted(arm, ground.prompts, ground.artifacts(id))
    with vllm_peer.serving(folder, "bfloat16", ground.prompts, ground.work) as vllm:
        ground.vllm = vllm.version
        rounds = ground.race(id, {"ours": mine, "vllm": vllm.contender})
    return shown(id, rounds), _row(id, standing(rounds, "ours", "vllm"), unlike=PACKED_UNLIKE)


def _steps(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found = steps(ground.variant("int4"), int(id.removeprefix("step_")), OF_STEPS * ground.size.rounds)
    ratios = [one.step / one.products for one in found]
    middle = median(ratios)
    row = DECODE.row(id, middle, met=middle <= AT_MOST[id], spread=[min(ratios), max(ratios)])
    return [{"step": id, **asdict(one)} for one in found], row | {"without_calls": median(map(_without_calls, found))}


def _without_calls(one: Steps) -> float:
    """Over the multiplying alone."""
    return one.step / (one.products - one.calls)


def _memory(ground: Ground, id: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    folder = ground.work / "large"
    size, found = peaks.write_model(folder), []
    for _ in range(1 if ground.size != FULL else 3):
        mine, theirs = (peaks.peak(way, folder, ground.size.rows) for way in ("ours", "generate"))
        found.append(
            {
                "memory": {"ours": asdict(mine), "generate": asdict(theirs), "file": size},
                "of_generate": mine.most / theirs.most,
                "of_file": mine.loaded / size,
                "answering_of_generate": mine.answering / theirs.answering,
            }
        )
    names = ("of_generate", "of_file", "answering_of_generate")
    middle = {name: median(one[name] for one in found) for name in names}
    spread = {name: [min(one[name] for one in found), max(one[name] for one in found)] for name in names}
    met = middle["of_generate"] <= OF_GENERATE and middle["of_file"] <= OF_FILE
    return found, DECODE.row(id, middle, met=met, spread=spread)
