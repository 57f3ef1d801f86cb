"""A draft head that can run, laid out once for an arm that it drafts for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.draft_heads.ahead import Ahead
from qualgate.engine.draft_heads.ahead_layer import AheadLayer
from qualgate.engine.draft_heads.eagle3 import Eagle3Head, Eagle3Layer, eagle3_tensors
from qualgate.engine.draft_heads.folder import (
    CONFIG,
    TENSORS,
    HeadFolder,
    HeadShape,
    HeadTarget,
    check_head,
    check_tokens,
    config_of,
)
from qualgate.engine.draft_heads.layer import HeadLayer, check_tensors, head_tensors
from qualgate.engine.draft_heads.medusa import Block, MedusaHeads, block
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.draft_heads.published import WEIGHTS, own_names, taps, turning
from qualgate.engine.draft_model import Head
from qualgate.engine.head import OutputHead
from qualgate.engine.room import is_short
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws
from qualgate.errors import NotInThisVersion, UsageError, one_line
from qualgate.quant.model_files import readable
from qualgate.records import ArmIdentity, ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.choice import Choice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedHead:
    """A head laid out for the kernels. numbers: that it holds; layer: None of Medusa's, which are `blocks`; head,
    embed: its own output head and embedding, None: the target's; taps: behind how many of the target's layers it reads,
    (): what enters the target's output head."""

    folder: HeadFolder
    numbers: int
    layer: HeadLayer | Eagle3Layer | AheadLayer | None = None
    blocks: tuple[Block, ...] = ()
    head: Head | None = None
    embed: Callable[[torch.Tensor], torch.Tensor] | None = None
    taps: tuple[int, ...] = ()

    @property
    def reads(self) -> int:
        """Numbers of a state that it is handed."""
        return max(1, len(self.taps)) * self.folder.shape.width

    def proposer(
        self,
        name: str,
        head: Head,
        embed: Callable[[torch.Tensor], torch.Tensor],
        *,
        blocks: int,
        threads: int,
        stop_ids: frozenset[int],
        draws: Draws | Ruling | None = None,
    ) -> DraftHead | MedusaHeads:
        """Who drafts by it; see `DraftHead`."""
        if self.layer is None:
            return MedusaHeads(name, self.blocks, head, stop_ids=stop_ids, draws=draws)
        return DraftHead(
            name, self.layer, self.head or head, self.embed or embed,
            blocks=blocks, threads=threads, stop_ids=stop_ids, draws=draws,
        )  # fmt: skip


def load_head(folder: HeadFolder, layers: int) -> LoadedHead:
    """The head of a folder, for a target of so many layers. UsageError where its tensors are not what its config says,
    and where it reads layers that the target has not."""
    tensors = read_head_tensors(folder)
    if folder.layout == "eagle3":
        return LoadedHead(
            folder=folder,
            numbers=sum(one.numel() for one in tensors.values()),
            layer=Eagle3Layer(tensors, folder.shape, turning(folder.published)),
            head=Eagle3Head(tensors, folder.shape),
            taps=taps(folder.published, layers),
        )
    medusa = folder.layout == "medusa"
    return LoadedHead(
        folder=folder,
        numbers=sum(one.numel() for one in tensors.values()),
        layer=None if medusa else HeadLayer(tensors, folder.shape),
        blocks=tuple(block(tensors, place) for place in range(folder.tokens)) if medusa else (),
    )


@dataclass(frozen=True, slots=True)
class _Three:
    """Rows of a text that nobody wrote, see `batch.Rows`."""

    blocks: tuple[int, ...] = (0,)
    first: int = 0
    tokens: tuple[int, ...] = (0, 0, 0)
    wants: int = 3

    @property
    def stream(self) -> _Three:
        return self


def load_own(
    folder: HeadFolder, ahead: Ahead, model: PreTrainedModel, choice: Choice, dtype: torch.dtype
) -> LoadedHead:
    """The layer that a model has for further tokens, tried once. UsageError for tensors that are not its class's,
    NotInThisVersion where it cannot be built alone or attends as no layer of the model does."""
    layer, kept = AheadLayer(ahead, model, dtype, str(folder.path)), KeysValues()
    try:
        with torch.inference_mode():
            three = torch.zeros(3, folder.shape.width)
            layer.forward(layer.joined(three, three), batch([_Three()], 1), kept, 1)
        ours, theirs = (states[layer.place] for states in (kept.seen, choice.seen))
        same = (ours.scale, ours.soft_cap, ours.window) == (theirs.scale, theirs.soft_cap, theirs.window)
        why = "" if same and kept.numbers[layer.place] == folder.kept else "it attends as its config does not say"
    except Exception as error:  # whatever a layer does that its model does not call as others do
        if is_short(error):
            raise
        why = f"it fails with {one_line(error)}"
    if why:
        raise NotInThisVersion(
            f"{folder.path}: its layer for further tokens (MTP) does not draft in this version: {why}. `qualgate draft "
            "train` makes a head for it."
        )
    return LoadedHead(folder=folder, numbers=layer.numbers, layer=layer, head=layer.head, embed=layer.embed)


def read_head_tensors(folder: HeadFolder) -> dict[str, torch.Tensor]:
    """By name, as they lie there."""
    path = folder.path / (WEIGHTS if folder.layout == "eagle3" else TENSORS)
    try:
        with readable(folder.path):
            tensors = load_file(path)
    except SafetensorError as error:
        raise UsageError(f"{path} is damaged ({error}). Train this head again, or fetch it again.") from None
    if folder.layout == "eagle3":
        tensors = own_names(tensors)
        _check_published(tensors, folder, str(path))
        return tensors
    assert folder.layout != "mtp", "it lies in its target's files"
    check_tensors(tensors, head_tensors(folder.layout, folder.tokens, folder.shape), str(path))
    return tensors


def _check_published(tensors: dict[str, torch.Tensor], folder: HeadFolder, where: str) -> None:
    head, vocabulary = tensors.get("lm_head.weight"), folder.shape.vocabulary
    drafted = vocabulary if head is None else len(head)
    wanted = eagle3_tensors(folder.shape, drafted)
    check_tensors(
        tensors, {**wanted, **({"d2t": (drafted,)} if "d2t" in tensors or drafted < vocabulary else {})}, where
    )
    if "d2t" in tensors:
        ids = torch.arange(drafted) + tensors["d2t"]
        if int(ids.min()) < 0 or int(ids.max()) >= vocabulary or len(ids.unique()) < drafted:
            raise UsageError(f"{where}: d2t names tokens that no vocabulary of {vocabulary:,} has, or one twice.")


def save_head(
    path: Path,
    layout: str,
    tokens: int,
    shape: HeadShape,
    tensors: dict[str, torch.Tensor],
    target: HeadTarget,
    trained: Mapping[str, Any],
) -> None:
    """Make a head's folder, `config.json` last: until it is there, nobody takes the folder for a head."""
    path.mkdir(parents=True, exist_ok=True)
    (path / TENSORS).write_bytes(save(tensors))
    (path / CONFIG).write_text(config_of(layout, tokens, shape, target, trained), encoding="utf-8")


def target_of(spec: ArmSpec, identity: ArmIdentity) -> HeadTarget:
    """Whose head it is, of a head that learns on this arm."""
    return HeadTarget(weights=identity.weights, tokenizer=identity.tokenizer, name=spec.target_name)


def check_fits(
    spec: ArmSpec, target: HeadTarget, model: PreTrainedModel, choice: Choice, head: HeadFolder, tokens: int
) -> None:
    """Raise UsageError for a head that is not the arm's, NotInThisVersion for an arm whose states are not what enters
    its head. tokens: γ, 0 for as many as pay."""
    if not choice.whole:
        raise NotInThisVersion(
            f"{spec.name}: {spec.model} changes its logits after its output head in a way that nobody here knows, so "
            "that a draft head would not say what it says. Draft by `quantize` or another `model`."
        )
    check_head(spec.name, head, target, width=width_of(model), vocabulary=OutputHead(model).vocabulary)
    check_tokens(spec.name, head, tokens)
    if head.layout == "eagle3" and choice.kind != "plain":
        raise NotInThisVersion(
            f"{spec.name}: an EAGLE-3 head reads between a model's layers, which is done in C, and {spec.model} does "
            f"not pass through it: {choice.because}."
        )


def width_of(model: PreTrainedModel) -> int:
    """Numbers of a state."""
    config: Any = model.config.get_text_config(decoder=True)
    return int(config.hidden_size)
