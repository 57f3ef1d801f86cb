"""Load draft heads and lay them out for the arm that they draft for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.dense import DenseEmbedding
from qualgate.engine.draft_heads.ahead import EMBEDDING, OTHERWISE, Ahead
from qualgate.engine.draft_heads.ahead_layer import AheadLayer, same
from qualgate.engine.draft_heads.eagle3 import Eagle3Head, Eagle3Layer, eagle3_tensors
from qualgate.engine.draft_heads.folder import HeadFolder, check_head
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.draft_heads.published import WEIGHTS, own_names, taps, turning
from qualgate.engine.draft_heads.tensors import check_tensors
from qualgate.engine.draft_model import Head
from qualgate.engine.head import OutputHead
from qualgate.engine.room import is_short
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws
from qualgate.errors import NotInThisVersion, UsageError, one_line
from qualgate.quant.model_files import readable
from qualgate.records import ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.choice import Choice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedHead:
    """A head laid out for the kernels. numbers: count of its weights; head, embed: its own output head and embedding,
    None for the target's; taps: after how many layers of the target it reads, () for the output head's input."""

    folder: HeadFolder
    numbers: int
    layer: Eagle3Layer | AheadLayer
    head: Head | None = None
    embed: Callable[[torch.Tensor], torch.Tensor] | None = None
    taps: tuple[int, ...] = ()

    @property
    def reads(self) -> int:
        """Numbers of a state that it receives."""
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
    ) -> DraftHead:
        """Return a proposer that drafts with this head; see `DraftHead`."""
        return DraftHead(
            name, self.layer, self.head or head, self.embed or embed,
            blocks=blocks, threads=threads, stop_ids=stop_ids, draws=draws,
        )  # fmt: skip


def load_head(folder: HeadFolder, layers: int, embedding: torch.Tensor) -> LoadedHead:
    """Load the head of an EAGLE-3 folder.

    Args:
        folder: The result of `read_head_folder`.
        layers: Number of the target's layers.
        embedding: The target's, [vocabulary, width]. A head with another embedding uses its own.

    Raises:
        UsageError: If its tensors contradict its config, or it reads layers that the target lacks.
    """
    tensors = read_head_tensors(folder)
    own_embedding = tensors.pop(EMBEDDING, None)
    if own_embedding is not None and same(own_embedding, embedding):
        own_embedding = None
    return LoadedHead(
        folder=folder,
        numbers=sum(
            tensor.numel() for tensor in (*tensors.values(), *(() if own_embedding is None else (own_embedding,)))
        ),
        layer=Eagle3Layer(tensors, folder.shape, turning(folder.published), folder.form),
        head=Eagle3Head(tensors, folder.shape, folder.form),
        embed=None if own_embedding is None else DenseEmbedding(own_embedding),
        taps=taps(folder.published, layers),
    )


@dataclass(frozen=True, slots=True)
class _Three:
    """Rows of a made-up text, see `batch.Rows`."""

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
    """Load a model's own MTP layer and try it once. UsageError for tensors that do not fit its class, NotInThisVersion
    if it cannot be built alone or attends unlike the model's layers."""
    layer, cache = AheadLayer(ahead, model, dtype, str(folder.path)), KeysValues()
    try:
        with torch.inference_mode():
            three_rows = torch.zeros(3, folder.shape.width)
            layer.forward(layer.joined(three_rows, three_rows), batch([_Three()], 1), cache, 1)
        head_attention, model_attention = (states[layer.place] for states in (cache.seen, choice.seen))
        attends_alike = (head_attention.scale, head_attention.soft_cap, head_attention.window) == (
            model_attention.scale,
            model_attention.soft_cap,
            model_attention.window,
        )
        reason = (
            ""
            if attends_alike and cache.numbers[layer.place] == folder.shape.cache_numbers
            else "it attends as its config does not say"
        )
    except Exception as error:  # whatever a layer does that its model does not call as others do
        if is_short(error):
            raise
        reason = f"it fails with {one_line(error)}"
    if reason:
        raise NotInThisVersion(
            f"{folder.path}: its layer for further tokens (MTP) does not draft in this version: {reason}. {OTHERWISE}"
        )
    return LoadedHead(folder=folder, numbers=layer.numbers, layer=layer, head=layer.head, embed=layer.embed)


def read_head_tensors(folder: HeadFolder) -> dict[str, torch.Tensor]:
    """Return the tensors of an EAGLE-3 folder, named as in `eagle3_tensors`, and a copy of an embedding."""
    path = folder.path / WEIGHTS
    try:
        with readable(folder.path):
            tensors = own_names(load_file(path))
    except SafetensorError as error:
        raise UsageError(f"{path} is damaged ({error}). Fetch this head again.") from None
    head, vocabulary, drafts = tensors.get("lm_head.weight"), folder.shape.vocabulary, tensors.pop("t2d", None)
    drafted = vocabulary if head is None else len(head)
    expected_shapes = eagle3_tensors(folder.shape, drafted, folder.form)
    if EMBEDDING in tensors:
        expected_shapes[EMBEDDING] = (vocabulary, folder.shape.width)
    if "d2t" in tensors or drafted < vocabulary:
        expected_shapes["d2t"] = (drafted,)
    check_tensors(tensors, expected_shapes, str(path))
    if "d2t" in tensors:
        ids = torch.arange(drafted) + tensors["d2t"]
        if int(ids.min()) < 0 or int(ids.max()) >= vocabulary or len(ids.unique()) < drafted:
            raise UsageError(f"{path}: d2t names tokens that no vocabulary of {vocabulary:,} has, or one twice.")
        if drafts is not None and drafts.nonzero().flatten().tolist() != ids.sort().values.tolist():
            raise UsageError(f"{path}: d2t and t2d name other tokens. Fetch this head again.")
    return tensors


def check_fits(spec: ArmSpec, model: PreTrainedModel, choice: Choice, head: HeadFolder) -> None:
    """Raise UsageError for a head of another model, NotInThisVersion for an arm whose states do not lead to its
    logits."""
    if not choice.whole:
        raise NotInThisVersion(
            f"{spec.name}: {spec.model} changes its logits after its output head in a way that nobody here knows, so "
            "that a draft head would not say what it says. Draft by `quantize` or another `model`."
        )
    config: Any = model.config.get_text_config(decoder=True)
    check_head(spec.name, head, width=int(config.hidden_size), vocabulary=OutputHead(model).vocabulary)
    if head.layout == "eagle3" and choice.kind != "plain":
        raise NotInThisVersion(
            f"{spec.name}: an EAGLE-3 head reads between a model's layers, which is done in C, and {spec.model} does "
            f"not pass through it: {choice.because}."
        )
