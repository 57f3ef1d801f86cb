"""From a model and cases to a folder that holds a draft head: what `qualgate draft train` does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from qualgate.engine.draft_heads.folder import read_head_folder
from qualgate.engine.draft_heads.held_out import HeldOut, held_out
from qualgate.engine.draft_heads.loading import load_head, save_head, target_of, width_of
from qualgate.engine.draft_heads.texts import Question, answers_of, read_texts
from qualgate.engine.draft_heads.training import Lessons, learned
from qualgate.engine.load import LoadedArm, load_arm
from qualgate.engine.pass_costs import pass_costs
from qualgate.engine.prompts import Renderer
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.formatting import counted
from qualgate.identity import content_hash, question_hash
from qualgate.quant.model_files import read_files
from qualgate.records import ArmSpec, Case, DraftSource, Speculation
from qualgate.records.speculated import DRAFT_COST

STATES = 2**30  # bytes of states that one learns from
LEAST = 8  # cases, one of them held out

Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is; 0: a line to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadOrder:
    """target: the arm whose head it is to be; cases: whose prompts it learns on; out: the folder to make; share: of the
    cases, held out; most: cases that are taken, 0: all."""

    target: ArmSpec
    cases: Sequence[Case]
    out: Path
    lessons: Lessons = field(default_factory=Lessons)
    share: float = 0.1
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedHead:
    """learned_on: cases; loss: of the last step; draft_cost: of a drafted token, in steps of the target."""

    folder: Path
    layout: str
    target: str
    learned_on: int
    left_out: int
    loss: float
    seconds: float
    nbytes: int
    sha256: str
    draft_cost: float
    held_out: HeldOut

    def as_json(self) -> dict[str, Any]:
        """As plain JSON."""
        said = {name: getattr(self, name) for name in self.__slots__}
        return {**said, "folder": str(self.folder), "held_out": self.held_out.as_json()}


def train_head(order: HeadOrder, cache: Path, progress: Progress) -> TrainedHead:
    """Train a head, save it, and say what it comes to on cases that it did not learn on.

    cache: where a quantized target's packed weights lie. Raises UsageError for what cannot be learned of or written,
    NotInThisVersion for a target that draft heads do not serve.
    """
    began = perf_counter()
    _check(order)
    arm = load_arm(order.target, cache, {}, device="cpu")
    _refuse_unserved(arm)
    cases = _drawn(order)
    asked = _questions(arm, cases)
    progress(f"answering {counted(len(asked), 'prompt')} with {order.target.target_name}", 0, 0)
    answers = answers_of(arm, asked, lambda done, total: progress("answers", done, total))
    held, (kept, left_out) = _held(len(asked), order.share), _that_fit(arm, asked, answers, order.share)
    progress(f"learning from {counted(len(kept), 'answer')}, {counted(held, 'prompt')} held out", 0, 0)
    texts = read_texts(arm, [(asked[at].prompt, answers[at]) for at in kept])
    losses = [0.0]

    def step(loss: float, done: int, total: int) -> None:
        losses[0] = loss
        progress(f"loss {loss:.3f}", done, total)

    shape, tensors = learned(arm, texts, order.lessons, step)
    trained = _trained(order, cases, [cases[at] for at in kept])
    save_head(
        order.out,
        order.lessons.layout,
        order.lessons.tokens,
        shape,
        tensors,
        target_of(arm.spec, arm.identity),
        trained,
    )
    folder = read_head_folder(order.out)
    head = load_head(folder, len(arm.choice.seen))
    found = held_out(
        arm, head, asked[:held], [case.task for case in cases[:held]], answers[:held], order.lessons.tokens
    )
    spec = Speculation(draft=DraftSource(kind="head", head=str(folder.path)), tokens=order.lessons.tokens)
    return TrainedHead(
        folder=folder.path,
        layout=order.lessons.layout,
        target=order.target.target_name,
        learned_on=len(kept),
        left_out=left_out,
        loss=losses[0],
        seconds=perf_counter() - began,
        nbytes=folder.nbytes,
        sha256=folder.sha256,
        draft_cost=pass_costs((arm.model, arm.choice), spec, [None], head)[f"{DRAFT_COST}1"],
        held_out=found,
    )


def _check(order: HeadOrder) -> None:
    lessons = order.lessons
    for what, value, least, most in (
        ("--tokens", lessons.tokens, 1, 32), ("--steps", lessons.steps, 1, 10**6), ("--cases", order.most, 0, 10**9),
    ):  # fmt: skip
        if not least <= value <= most:
            raise UsageError(f"{what} is a whole number from {least} to {most:,}, not {value}.")
    if lessons.layout == "parallel" and lessons.tokens < 2:
        raise UsageError("--layout parallel makes several tokens in one pass: give --tokens 2 or more.")
    if not 0 < order.share < 1:
        raise UsageError(f"--held-out is a share of the cases between 0 and 1, such as 0.1, not {order.share}.")
    count = min(len(order.cases), order.most or len(order.cases))
    if count < LEAST:
        raise UsageError(f"A head learns on {LEAST} cases or more, some of them held out, and here are {count}.")
    if order.out.exists() and (not order.out.is_dir() or any(order.out.iterdir())):
        raise UsageError(f"{order.out} is there already. Name another folder by --out, or remove it first.")


def _refuse_unserved(arm: LoadedArm) -> None:
    if arm.choice.kind == "padded":
        raise NotInThisVersion(
            f"{arm.spec.model} runs in padded batches here ({arm.choice.because}), and draft heads read what packed "
            "passes compute."
        )
    if not arm.choice.whole:
        raise NotInThisVersion(
            f"{arm.spec.model} changes its logits after its output head in a way that nobody here knows, so that a "
            "draft head would not say what it says."
        )


def _drawn(order: HeadOrder) -> list[Case]:
    """Cases in an order drawn by the seed: the first are held out."""
    drawn = random.Random(order.lessons.seed).sample(list(order.cases), len(order.cases))
    return drawn[: order.most or len(drawn)]


def _questions(arm: LoadedArm, cases: Sequence[Case]) -> list[Question]:
    if read := [case for case in cases if "requests" in case.body]:
        raise UsageError(f"{read[0].evalset}/{read[0].id} is only read, never answered: a head learns on answers.")
    prompts = Renderer(read_files(Path(arm.spec.model))).render(cases)
    return [
        Question(prompt=prompt, max_new_tokens=_answer_tokens(arm, case, prompt))
        for case, prompt in zip(cases, prompts, strict=True)
    ]


def _answer_tokens(arm: LoadedArm, case: Case, prompt: Sequence[int]) -> int:
    if arm.context_length is None:
        return case.max_new_tokens
    left = arm.context_length - len(prompt)
    if left < 2:
        raise UsageError(
            f"{case.evalset}/{case.id}: its prompt of {len(prompt)} tokens leaves no room for an answer within the "
            f"model's context of {arm.context_length}."
        )
    return min(case.max_new_tokens, left)


def _held(cases: int, share: float) -> int:
    return min(max(1, round(share * cases)), cases - 1)


def _that_fit(
    arm: LoadedArm, asked: Sequence[Question], answers: Sequence[Sequence[int]], share: float
) -> tuple[list[int], int]:
    """Indices of the answers to learn from, as many as fit into memory, and how many are left out."""
    each, taken, kept = 4 * width_of(arm.model), 0, list[int]()
    learnable = range(_held(len(asked), share), len(asked))
    for at in learnable:
        taken += each * (len(asked[at].prompt) + len(answers[at]))
        if kept and taken > STATES:
            break
        kept.append(at)
    return kept, len(learnable) - len(kept)


def _trained(order: HeadOrder, cases: Sequence[Case], learned_on: Sequence[Case]) -> dict[str, Any]:
    """How it was made. questions: hashes of what it learned on, by which a run knows its own cases among them."""
    return {
        "evalsets": sorted({case.evalset for case in cases}),
        "cases": content_hash([case.hash for case in cases]),
        "questions": sorted({question_hash(case.body) for case in learned_on}),
        "steps": order.lessons.steps,
        "seed": order.lessons.seed,
        "held_out": order.share,
    }
