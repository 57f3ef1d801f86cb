"""Build the proposers of a run: a cascade from its cheapest level upwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch

from qualgate.engine.batch_costs import learned_from
from qualgate.engine.choice import open_decoder
from qualgate.engine.draft_arms import lending, levels
from qualgate.engine.draft_blocks import LentBlocks, OwnBlocks
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.draft_model import DraftModel
from qualgate.engine.graphs import graphed
from qualgate.engine.head import OutputHead
from qualgate.engine.loaded import LoadedArm, LoadedDraft
from qualgate.engine.packed import PackedEngine
from qualgate.engine.plain_decoder import FastDecoder
from qualgate.engine.request import Request
from qualgate.engine.room import room
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws
from qualgate.engine.schedule import blocks_for
from qualgate.engine.speculation.ngram import Ngram, Suffix
from qualgate.engine.speculation.steps import Drafts
from qualgate_kernels.slots import SLOTS

BYTES = 4  # of a number in a head's cache


class _Within:
    """An output head cut to the tokens that target and drafts share: heads differ in padding."""

    def __init__(self, head: OutputHead, vocabulary: int) -> None:
        self._head, self.vocabulary = head, vocabulary

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return float32 [..., vocabulary]."""
        return self._head.logits(states)[..., : self.vocabulary]


@contextmanager
def _reading(
    name: str,
    arm: LoadedArm,
    engine: PackedEngine,
    requests: Sequence[Request],
    stop_ids: frozenset[int],
    draws: Draws | Ruling | None,
) -> Iterator[DraftHead]:
    """Yield the draft head of an arm, which receives what its engine reads during the block."""
    assert arm.draft is not None, f"nobody drafts for {arm.spec.name}"
    loaded = arm.draft.head
    assert loaded is not None, "loading gives every level of this kind a head"
    most = max(1, room() // (BYTES * loaded.folder.shape.cache_numbers * SLOTS))
    proposer = loaded.proposer(
        name,
        engine.head,
        arm.model.get_input_embeddings(),
        blocks=min(most, blocks_for(requests, engine.limits)),
        threads=engine.threads,
        stop_ids=stop_ids,
        draws=draws,
    )
    engine.reader = proposer
    if loaded.taps:
        decoder = engine.decoder
        assert isinstance(decoder, FastDecoder), "loading refuses others"
        engine.tapped = partial(decoder.tapped, after=loaded.taps)
    try:
        yield proposer
    finally:
        engine.reader = engine.tapped = None


def _suffix(draft: LoadedDraft, at: int) -> Suffix:
    """Return the suffix proposer of level `at`. Under the default rule it drafts from earlier jobs' answers too,
    because no token depends on drafts; under others an answer would depend on the jobs that its worker had before."""
    return draft.suffixes.setdefault(at, Suffix()) if draft.spec.rule == "keyed" else Suffix()


@contextmanager
def open_proposers(
    arm: LoadedArm,
    engine: PackedEngine,
    requests: Sequence[Request],
    stop_ids: frozenset[int],
    draws: Draws | None = None,
    tasks: Sequence[str] = (),
) -> Iterator[tuple[Drafts, ...]]:
    """Yield who drafts for an arm, one per level, the one verified by the target first; each drafts for the one before
    it. They serve one run of `engine` with these requests and share its `draws`: drafts with the same noise are
    accepted more often. tasks: see `Drafts`."""
    draft, cascade = arm.draft, list[Drafts]()
    assert draft is not None, f"nobody drafts for {arm.spec.name}"
    rule, chances = draft.spec.rule, draws
    if draws is not None and rule != "keyed":  # a lossy rule has no known distribution
        chances = Ruling(rule if draft.spec.lossless else "speculative_sampling", draws)
    heads = [engine.head, *(OutputHead(model.model) for model in draft.arms if model is not None)]
    vocabulary = min(head.vocabulary for head in heads)
    with ExitStack() as stack:
        reusing_levels = lending(arm.choice, draft.spec, [model.choice if model else None for model in draft.arms])
        for index, level in reversed(list(enumerate(levels(draft.spec)))):
            name, model = level.names[0], draft.arms[index]
            if level.draft.kind == "head":
                proposer = stack.enter_context(_reading(name, arm, engine, requests, stop_ids, chances))
            elif model is None:
                proposer = Ngram() if level.draft.kind == "ngram" else _suffix(draft, index)
            else:
                decoder, head = stack.enter_context(open_decoder(model.model, model.choice))
                most = max(1, room() // (model.choice.position_bytes * SLOTS))
                own_count = min(most, blocks_for(requests, engine.limits))
                proposer = DraftModel(
                    name,
                    graphed(decoder, head.device),
                    _Within(head, vocabulary),
                    blocks=LentBlocks(engine)
                    if index < reusing_levels
                    else OwnBlocks(own_count, model.choice.cache_form, model.choice.scales),
                    threads=engine.threads,
                    stop_ids=stop_ids,
                    draws=chances,
                    under=cascade[0] if cascade else None,
                )
            if index not in draft.learned:
                facts = {} if index else arm.footprint.facts
                draft.learned[index] = learned_from(facts, [each_level.names[0] for each_level in levels(draft.spec)])
            learned = draft.learned[index]
            cheaper = (
                () if level.tokens else tuple(drafts.proposer for drafts in cascade if drafts.proposer.name != name)
            )
            cascade.insert(0, Drafts(proposer, level.tokens, [], learned, "keyed" if index else rule, cheaper, tasks))
        yield tuple(cascade)
