"""Benchmark `exact`: an answer has the bits that it has alone, whatever was batched, drafted, cut or threaded.

The reference asks one request at a time, of an engine of its own, and passes one token at a time, prompts too: plain,
on one thread. Every other way is held against it: tokens, log-probs, margins and logits.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import cycle, product
from typing import TYPE_CHECKING, Any, Literal

import torch

from qualgate.engine.choice import open_engine
from qualgate.engine.load import load_arm
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.packed import PackedEngine
from qualgate.engine.proposers import open_proposers
from qualgate.engine.request import Request
from qualgate.engine.sampling import Draws, noise_cases
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.known import Known, Sources
from qualgate.engine.speculation.propose import NO_DRAFT, Draft, DraftRequest, Proposer
from qualgate.engine.speculation.steps import Drafts
from qualgate.quant.recipes import parse_recipe
from qualgate.records import GREEDY, ArmSpec, DraftSource, Prompt, Sampling, Speculation
from tests.benchmarks.questions import MODEL, asked
from tests.benchmarks.shape import told
from tests.verification.exactness.bits import Answer, Difference, Heard, difference
from tests.verification.goals import EXACT

if TYPE_CHECKING:
    from torch import Tensor

    from qualgate.records.arms import Arithmetic, Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What is asked, as a gate file would say it. by_modules: as architectures pass that are no plain decoders."""

    quantize: Any = None
    dtype: Literal["bfloat16", "float16"] = "bfloat16"
    arithmetic: Arithmetic = "float32"
    kv_cache: Kept = "float32"
    by_modules: bool = False


WEIGHTS = {
    "bfloat16": Made(),
    "bfloat16 by its modules": Made(by_modules=True),
    "bfloat16 served": Made(arithmetic="served"),
    "bfloat16 served by its modules": Made(arithmetic="served", by_modules=True),
    "float16": Made(dtype="float16"),
    "int8": Made(quantize="int8"),
    "int4": Made(quantize={"method": "int4", "group_size": 32}),
    "mxfp4": Made(quantize="mxfp4"),
    "w8a8": Made(quantize={"method": "int8", "activations": "int8"}),
    "int2": Made(quantize={"method": "int2", "group_size": 32}),  # hardly ever says what the baseline says
}
_KEPT: tuple[Kept, ...] = ("bf16", "fp8", "int8", "int4")
_ARITHMETICS: tuple[Arithmetic, ...] = ("float32", "served")
CACHED = {  # keys and values in fewer bits, under either arithmetic; every third by its modules
    f"KV {kept}, {arithmetic}": Made(kv_cache=kept, arithmetic=arithmetic, by_modules=by_modules)
    for (kept, arithmetic), by_modules in zip(product(_KEPT, _ARITHMETICS), cycle((False, False, True)), strict=False)
} | {"int4, KV int8, served": replace(WEIGHTS["int4"], kv_cache="int8", arithmetic="served")}
BASELINE = "bfloat16"
ALONE = Limits(rows=1, sequences=1)  # one token a pass
WAYS = {
    "many at once": Limits(),
    "one at a time": Limits(sequences=1),
    "small mixed passes": Limits(rows=19, sequences=7),
}
DRAFTS = ("plain", "baseline", "spoiled", "cascade")
CASCADE = Speculation(
    draft=DraftSource(
        kind="quantize", quantize=parse_recipe("mxfp4"), under=Speculation(draft=DraftSource(kind="ngram"))
    ),
    tokens=4,
)
SAMPLINGS = {"greedy": GREEDY, "drawn": Sampling(temperature=0.8, top_p=0.95)}
THREADS = (1, 2)
SEED = 11
PER_SET, PER_SET_QUICK = 9, 1  # cases of each of the seven sets
STRIDE = 7  # --quick: one cell in seven; each of the 48 ways to ask comes with some weights
KEPT_STRIDE = 11  # --quick, of CACHED
TOKENS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One way to ask. See WEIGHTS, CACHED, WAYS, DRAFTS, SAMPLINGS."""

    weights: str
    way: str
    drafts: str
    sampling: str
    threads: int


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """480 cells over 63 cases, and a reference for each weights and sampling: some 40 minutes of two idle cores; then
    432 of keys and values in fewer bits: as many. quick: 69 and 40 cells over 7 cases, about a minute."""
    cases = PER_SET_QUICK if quick else PER_SET
    rounds, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, weights, stride in (("exact", WEIGHTS, STRIDE), ("exact.kept", CACHED, KEPT_STRIDE)):
        ids = [id for id in EXACT.goals if id.rpartition(".")[0] == name]
        if only and not set(only) & set(ids):
            rows += [EXACT.not_run(id, "not asked for") for id in ids]
            continue
        cells = every_cell(weights)
        mine = measured(name, cells[::stride] if quick else cells, cases, len(cells))
        rounds, rows = rounds + mine[0], rows + mine[1]
    return EXACT.result(rounds=rounds, rows=rows)


Measured = tuple[list[dict[str, Any]], list[dict[str, Any]]]  # rounds, rows


def measured(name: str, cells: Sequence[Cell], per_set: int, whole: int) -> Measured:
    """Over these cells and so many cases of each set. whole: how many cells are all of them."""
    prompts = [one for kind in asked(per_set).values() for one in kind]
    with tempfile.TemporaryDirectory() as cache, _threads(1):
        compared = list(_compared(cells, prompts, cache))
    found = [one for _, one, _ in compared]

    def summed(name: str) -> int:
        return sum(getattr(one, name) for one in found)

    tokens = summed("tokens")
    few = None if len(cells) == whole else f"{tokens:,} tokens"
    return [asdict(cell) | asdict(one) | drafted for cell, one, drafted in compared], [
        EXACT.row(f"{name}.tokens", tokens, met=None if few else tokens >= TOKENS, few=few)
        | {"logits": summed("logits")},
        EXACT.row(f"{name}.other_tokens", summed("other_tokens"), met=not summed("other_tokens")),
        EXACT.row(f"{name}.other_bits", summed("other_bits"), met=not summed("other_bits")),
    ]


def every_cell(weights: Iterable[str] = WEIGHTS) -> list[Cell]:
    """All, those of one weights side by side."""
    return [
        Cell(weights=one, way=way, drafts=drafts, sampling=sampling, threads=threads)
        for one, way, drafts, sampling, threads in product(weights, WAYS, DRAFTS, SAMPLINGS, THREADS)
    ]


def _compared(
    cells: Sequence[Cell], prompts: Sequence[Prompt], cache: str
) -> Iterator[tuple[Cell, Difference, dict[str, int]]]:
    """(cell, what differs, tokens of drafts) of each."""
    baseline: dict[str, list[Answer]] = {}
    by_weights = {name: [cell for cell in cells if cell.weights == name] for name in {**WEIGHTS, **CACHED}}
    by_weights = {name: mine for name, mine in by_weights.items() if mine or name == BASELINE}
    for name, mine in told("exact", list(by_weights.items()), lambda item: item[0]):
        arm = loaded(name, cache)
        asking = {sampling: Asking(arm, prompts, one) for sampling, one in SAMPLINGS.items()}
        alone = {
            sampling: one.alone()
            for sampling, one in asking.items()
            if name == BASELINE or any(cell.sampling == sampling for cell in mine)
        }
        baseline = baseline or alone  # which comes first
        for cell in mine:
            expected = alone[cell.sampling]
            heard = asking[cell.sampling].heard(cell, expected, baseline[cell.sampling])
            drafted = {"proposed": heard.proposed, "accepted": heard.accepted}
            yield cell, difference(heard.answers, expected), drafted


def loaded(weights: str, cache: str) -> LoadedArm:
    """The reference model with these weights, made in `cache`. RuntimeError where packed passes do not serve it."""
    made = {**WEIGHTS, **CACHED}[weights]
    spec = ArmSpec(
        name=weights,
        model=str(MODEL),
        dtype=made.dtype,
        quantize=None if made.quantize is None else parse_recipe(made.quantize),
        speculation=CASCADE,
        arithmetic=made.arithmetic,
        kv_cache=made.kv_cache,
        kv_said=True,
    )
    arm = load_arm(spec, cache, {}, device="cpu")
    if arm.choice.kind != "plain":
        raise RuntimeError(f"{weights}: {arm.choice.because}")
    return replace(arm, choice=replace(arm.choice, kind="packed")) if made.by_modules else arm


class Asking:
    """The same prompts, asked of one arm in any way."""

    def __init__(self, arm: LoadedArm, prompts: Sequence[Prompt], sampling: Sampling) -> None:
        self._arm, self._sampling = arm, sampling
        self._cases: Tensor = noise_cases([prompt.key for prompt in prompts], torch.device("cpu"))
        self.requests = [
            Request(prompt=prompt.token_ids, max_new_tokens=prompt.max_new_tokens, stop_ids=frozenset(arm.stop_ids))
            for prompt in prompts
        ]

    def alone(self) -> list[Answer]:
        """One request at a time, of an engine of its own, one token a pass, on this thread."""
        return [self._run([row], [self.requests[row]], None, ALONE).answers[0] for row in range(len(self.requests))]

    def heard(self, cell: Cell, expected: Sequence[Answer], baseline: Sequence[Answer]) -> Heard:
        """As `cell` has it. expected: what the arm says, of which spoiled drafts are made; baseline: its baseline's."""
        requests, proposer = self.requests, None
        if cell.drafts == "cascade":
            proposer = "cascade"
        elif cell.drafts == "baseline":
            given = [tuple(answer.tokens) for answer in baseline]
            sources = (Sources(prompt=one.prompt, baseline=text) for one, text in zip(requests, given, strict=True))
            requests, proposer = _reading(requests, given), Known(sources)
        elif cell.drafts == "spoiled":
            proposer = Spoiled([answer.tokens for answer in expected])
            requests = _reading(requests, [proposer.whole(row) for row in range(len(requests))])
        with _threads(cell.threads):
            return self._run(range(len(requests)), requests, proposer, WAYS[cell.way])

    def _run(
        self,
        rows: Sequence[int],
        requests: Sequence[Request],
        proposer: Proposer | Literal["cascade"] | None,
        limits: Limits,
    ) -> Heard:
        draws = None
        if self._sampling.drawn:
            draws = Draws(seed=SEED, cases=self._cases[list(rows)], sampling=self._sampling)
        with ExitStack() as stack:
            engine = stack.enter_context(open_engine(self._arm.model, self._arm.choice, limits=limits))
            heard, drafts = Heard(requests, engine.head), None
            if proposer == "cascade":
                assert isinstance(engine, PackedEngine), "`loaded` refuses others"
                ends = frozenset(self._arm.stop_ids)
                drafts, *_ = stack.enter_context(open_proposers(self._arm, engine, requests, ends, draws))
            elif proposer is not None:
                drafts = Drafts(proposer)
            engine.run(requests, drafts, heard, draws)
        return heard


class Spoiled:
    """The proposer that is wrong on purpose: drafts are what will be said, but for one token in three, and of every
    fourth row none is right."""

    name = "spoiled"
    runs_model = False

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        self._answers = answers

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        coming = [self._spoiled(one.row)[len(one.generated) : len(one.generated) + one.most] for one in asked]
        return [Draft(tokens, "sibling", 8) if tokens else NO_DRAFT for tokens in coming]

    def ended(self, row: int) -> None: ...

    def whole(self, row: int) -> tuple[int, ...]:
        """An answer to read: right at first, then spoiled, and longer than the true one."""
        right = self._answers[row][: row % 7 if row % 4 else 0]
        return (*right, *self._spoiled(row)[len(right) :], row % 5, 3)

    def _spoiled(self, row: int) -> tuple[int, ...]:
        return tuple(
            (token - 1 if token else 1) if row % 4 == 0 or (row + at) % 3 == 1 else token
            for at, token in enumerate(self._answers[row])
        )


def _reading(requests: Sequence[Request], answers: Sequence[tuple[int, ...]]) -> list[Request]:
    return [replace(request, answer=answer) for request, answer in zip(requests, answers, strict=True)]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
