"""The layer that a model has for further tokens (see `ahead`), built from the class of the model's own layers.

It runs as packed models do: its own modules, our attention. What comes out behind its last norm is read by the output
head, and by the next step in the place of the target's state. (SGLang, transformers, and vLLM since its pull request
47448 hand on the same; vLLM's earlier releases handed on what enters that norm. None of the texts' first embeddings is
left out, as vLLM does and the others do not.)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from qualgate.engine import attention, dense
from qualgate.engine.attention import KeysValues, attending
from qualgate.engine.batch import Batch
from qualgate.engine.draft_heads.ahead import EMBEDDING, HEAD, OTHERWISE, Ahead, AheadLayout
from qualgate.engine.draft_heads.tensors import check_tensors
from qualgate.engine.head import After, OutputHead, finished
from qualgate.errors import NotInThisVersion, UsageError, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

AGAIN = "Fetch this checkpoint again."


class _Parts(nn.Module):
    """Its modules, without their numbers. Their config is their own: it says how they attend and take experts."""

    def __init__(self, model: PreTrainedModel, like: int) -> None:
        super().__init__()
        decoder: Any = model.get_decoder()
        self.config: Any = copy.deepcopy(model.config.get_text_config(decoder=True))
        self.config._attn_implementation = attention.NAME
        width = int(self.config.hidden_size)
        with torch.device("meta"):
            self.layer: Any = type(decoder.layers[like])(self.config, like)
            self.joins = nn.Linear(2 * width, width, bias=False)
        self.embedded, self.state, self.last = (copy.deepcopy(decoder.norm) for _ in range(3))

    def get_experts_implementation(self) -> Any:
        """As of a model."""
        return self.config._experts_implementation

    def set_experts_implementation(self, name: Any) -> None:
        """As of a model."""
        self.config._experts_implementation = name


class OwnHead:
    """An output head that the layer has beside its target's, finished as that is."""

    def __init__(self, weight: torch.Tensor, after: After) -> None:
        """weight: [vocabulary, width]."""
        self.vocabulary, self._module, self._after = len(weight), dense.head_of({"weight": weight}), after

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [..., vocabulary] of states [..., width]."""
        return finished(self._module(states), self._after).float()


class AheadLayer:
    """As `Eagle3Layer`. numbers: that it holds; head, embed: its own, None where they are its target's."""

    def __init__(self, ahead: Ahead, model: PreTrainedModel, dtype: torch.dtype, where: str) -> None:
        """dtype: of its weights, as the target's are. UsageError for tensors that are not its class's, NotInThisVersion
        for a model whose layers cannot be built alone."""
        attention.register()
        self.place, self._state_first = like(model), ahead.layout.state_first
        try:
            parts, decoder = _Parts(model, self.place), model.get_decoder()
            self._turning: Any = decoder.rotary_emb  # of the target: it has no weights
        except MemoryError:
            raise
        except Exception as error:  # whatever an architecture's constructor does, or has not
            raise _unbuilt(where, model, one_line(error)) from error
        tensors = _numbers(ahead, parts, model, where)
        own = {name: tensors.pop(name) for name in (EMBEDDING, HEAD) if name in tensors}
        rounded = {name for name, _ in parts.named_parameters()}
        parts.load_state_dict(
            {name: (one.to(dtype) if name in rounded else one).float() for name, one in tensors.items()}, assign=True
        )
        if any(one.is_meta for one in (*parts.parameters(), *parts.buffers())):
            raise _unbuilt(where, model, "it makes numbers of its own that no file holds")
        self.numbers = sum(one.numel() for one in tensors.values())
        self._parts = parts.eval().requires_grad_(False)
        if reason := dense.lay_out(self._parts):
            raise _unbuilt(where, model, reason)
        head, self.head, self.embed = OutputHead(model), None, None
        if HEAD in own and not same(own[HEAD].to(dtype), head.tensors["weight"] if head.plain else None):
            self.head, self.numbers = OwnHead(own[HEAD].to(dtype), head.after), self.numbers + own[HEAD].numel()
        embed: Any = model.get_input_embeddings()
        if EMBEDDING in own and not same(own[EMBEDDING].to(dtype), embed.weight):
            self.embed = dense.DenseEmbedding(own[EMBEDDING].to(dtype))
            self.numbers += own[EMBEDDING].numel()

    def entered(self, states: torch.Tensor) -> torch.Tensor:
        """What is read of the target's states: they are it."""
        return states

    def joined(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """What the layer reads of embeddings and states, float32 [rows, width] each."""
        both = self._parts.embedded(embedded), self._parts.state(states)
        return self._parts.joins(torch.cat(both[::-1] if self._state_first else both, -1))

    def forward(self, x: torch.Tensor, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """See `Eagle3Layer.forward`; x: [rows, width]."""
        positions = batch.positions[None]
        with attending(batch, states, threads):
            found = self._parts.layer(
                x[None],
                attention_mask=None,
                position_ids=positions,
                past_key_values=None,
                use_cache=False,
                position_embeddings=self._turning(x[None], positions),
            )
        found = found[0] if isinstance(found, tuple) else found
        return self._parts.last(found[0, batch.wanted])


def like(model: PreTrainedModel) -> int:
    """Which of the model's layers it is made as: the last that attends as the config says of layers ahead, and to all
    positions where it says nothing."""
    config: Any = model.config.get_text_config(decoder=True)
    kinds, layers = getattr(config, "layer_types", None) or (), int(config.num_hidden_layers)
    wanted = (getattr(config, "mtp_layer_types", None) or ["full_attention"])[0]
    return max((at for at, kind in enumerate(kinds) if kind == wanted), default=layers - 1)


def _numbers(ahead: Ahead, parts: _Parts, model: PreTrainedModel, where: str) -> dict[str, torch.Tensor]:
    """By the names of `parts`, each as its class wants it; and copies of embedding and head by the files' names."""
    wanted = {_theirs(name, ahead.layout): (name, tuple(one.shape)) for name, one in parts.state_dict().items()}
    expected = dict[str, tuple[int, ...]]()
    for theirs, (_, shape) in wanted.items():
        expected |= {theirs: shape} if theirs in ahead.entries else dict(_flat(_pieces(theirs, shape)))
    embed: Any = model.get_input_embeddings()
    sizes, width = {EMBEDDING: embed.num_embeddings, HEAD: OutputHead(model).vocabulary}, int(parts.config.hidden_size)
    expected |= {name: (size, width) for name, size in sizes.items() if name in ahead.entries}
    tensors = _read(ahead, where)
    place = ahead.prefix
    named = {place + name: one for name, one in tensors.items()}
    check_tensors(named, {place + name: shape for name, shape in expected.items()}, where, AGAIN)
    found = {name: tensors[name] for name in sizes if name in tensors}
    for theirs, (name, shape) in wanted.items():
        if theirs in tensors:
            found[name] = tensors[theirs]
        else:
            found[name] = torch.stack([torch.cat([tensors[one] for one, _ in some]) for some in _pieces(theirs, shape)])
    return found


def _theirs(name: str, layout: AheadLayout) -> str:
    """What files call a tensor of `_Parts`."""
    part, _, rest = name.partition(".")
    return layout.layer + rest if part == "layer" else f"{getattr(layout, part)}.{rest}"


_Pieces = list[list[tuple[str, tuple[int, ...]]]]


def _pieces(name: str, shape: tuple[int, ...]) -> _Pieces:
    """Of what is one tensor of all experts here, an expert each, what files hold of it; of another tensor itself."""
    root, _, last = name.rpartition(".")
    halves = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(last)
    if len(shape) != 3 or halves is None:
        return [[(name, shape)]]
    experts, rows, columns = shape
    size = rows // len(halves), columns
    return [[(f"{root}.{expert}.{half}.weight", size) for half in halves] for expert in range(experts)]


def _flat(pieces: _Pieces) -> Iterator[tuple[str, tuple[int, ...]]]:
    return (one for some in pieces for one in some)


def _read(ahead: Ahead, where: str) -> dict[str, torch.Tensor]:
    found = dict[str, torch.Tensor]()
    try:
        for file in {entry.file for entry in ahead.entries.values()}:
            with safe_open(file, "pt") as opened:
                found |= {
                    name: opened.get_tensor(ahead.prefix + name)
                    for name, entry in ahead.entries.items()
                    if entry.file == file
                }
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{where}: its weights cannot be read ({one_line(error)}). {AGAIN}") from None
    return found


def same(ours: torch.Tensor, theirs: torch.Tensor | None) -> bool:
    """Whether both hold the same numbers, each in its own dtype."""
    return theirs is not None and ours.shape == theirs.shape and torch.equal(ours.float(), theirs.float())


def _unbuilt(where: str, model: PreTrainedModel, why: str) -> NotInThisVersion:
    return NotInThisVersion(
        f"{where}: its layer for further tokens (MTP) is made as those of {type(model).__name__}, and does not "
        f"draft by itself in this version: {why}. {OTHERWISE}"
    )
