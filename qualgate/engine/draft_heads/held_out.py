"""What a head comes to on prompts that it did not learn on: drafted by it and verified, as an arm that runs does it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from qualgate.engine.answers import Answers
from qualgate.engine.choice import open_engine
from qualgate.engine.draft_heads.loading import LoadedHead
from qualgate.engine.draft_heads.texts import AT_ONCE, Question, request_of
from qualgate.engine.load import LoadedArm, LoadedDraft
from qualgate.engine.packed import PackedEngine
from qualgate.engine.proposers import open_proposers
from qualgate.records import DraftSource, Speculation
from qualgate.speculation.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """prompts: answered with drafts of `tokens`; passes: that verified one; positions: share of them that accepted each
    place; by_task: tokens a pass; same: answers are those without drafts, token for token."""

    prompts: int
    tokens: int
    passes: int
    proposed: int
    accepted: int
    positions: tuple[float, ...]
    by_task: dict[str, float]
    same: bool

    @property
    def acceptance(self) -> float | None:
        """Accepted / proposed; None where nothing was."""
        return self.accepted / self.proposed if self.proposed else None

    @property
    def tokens_per_pass(self) -> float | None:
        """1 + accepted / passes: with the token that is the target's own."""
        return 1 + self.accepted / self.passes if self.passes else None

    def as_json(self) -> dict[str, Any]:
        """As plain JSON."""
        said = {name: getattr(self, name) for name in self.__slots__}
        return {**said, "acceptance": self.acceptance, "tokens_per_pass": self.tokens_per_pass}


def held_out(
    arm: LoadedArm,
    head: LoadedHead,
    questions: Sequence[Question],
    tasks: Sequence[str],
    plain: Sequence[Sequence[int]],
    tokens: int,
) -> HeldOut:
    """tasks: of each question; plain: what the arm answers without drafts; tokens: γ."""
    spec = Speculation(draft=DraftSource(kind="head", head=str(head.folder.path)), tokens=tokens)
    drafting = replace(arm, draft=LoadedDraft(spec=spec, arms=(None,), head=head))
    steps, same = list[tuple[str, Step]](), True
    for start in range(0, len(questions), AT_ONCE):
        here = slice(start, start + AT_ONCE)
        requests, answers = [request_of(arm, one) for one in questions[here]], Answers(len(questions[here]))
        with open_engine(arm.model, arm.choice) as engine:
            assert isinstance(engine, PackedEngine), "loading refuses others"
            with open_proposers(drafting, engine, requests, frozenset(arm.stop_ids)) as (drafts, *_):
                engine.run(requests, drafts, answers)
        steps += [(tasks[start + one.row], one) for one in drafts.steps or () if one.proposed]
        same = same and answers.tokens == [list(one) for one in plain[here]]
    passes, accepted = Counter[str](), Counter[str]()
    for task, one in steps:
        passes[task] += 1
        accepted[task] += one.accepted
    reached = Counter(place for _, one in steps for place in range(one.accepted))
    return HeldOut(
        prompts=len(questions),
        tokens=tokens,
        passes=len(steps),
        proposed=sum(one.proposed for _, one in steps),
        accepted=sum(accepted.values()),
        positions=tuple(reached[place] / len(steps) for place in range(tokens)) if steps else (),
        by_task={task: 1 + accepted[task] / count for task, count in sorted(passes.items())},
        same=same,
    )
