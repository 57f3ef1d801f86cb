"""Build a model's MTP layer (see `ahead`) from the class of the model's own layers.

It runs like packed models: its own modules, our attention. The output behind its last norm goes to the output head, and
to the next step in place of the target's state. (SGLang, transformers, and vLLM since its pull request 47448 do the
same; earlier vLLM releases pass on the input of that norm. The first embedding of a text is used, unlike in vLLM.)
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
    """Modules of the layer, without weights. They have their own config, which sets attention and experts."""

    def __init__(self, model: PreTrainedModel, layer_index: int) -> None:
        """Create the modules of an MTP layer, built from the class of the model's layer `layer_index`."""
        super().__init__()
        decoder: Any = model.get_decoder()
        self.config: Any = copy.deepcopy(model.config.get_text_config(decoder=True))
        self.config._attn_implementation = attention.NAME
        width = int(self.config.hidden_size)
        with torch.device("meta"):
            self.layer: Any = type(decoder.layers[layer_index])(self.config, layer_index)
            self.joins = nn.Linear(2 * width, width, bias=False)
        self.embedded, self.state, self.last = (copy.deepcopy(decoder.norm) for _ in range(3))

    def get_experts_implementation(self) -> Any:
        """Return the experts implementation, as a model does."""
        return self.config._experts_implementation

    def set_experts_implementation(self, name: Any) -> None:
        """Set the experts implementation, as a model does."""
        self.config._experts_implementation = name


class OwnHead:
    """An output head that the layer has besides its target's, with the same final scaling."""

    def __init__(self, weight: torch.Tensor, after: After) -> None:
        """weight: [vocabulary, width]."""
        self.vocabulary, self._module, self._after = len(weight), dense.head_of({"weight": weight}), after

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return float32 [..., vocabulary] for states [..., width]."""
        return finished(self._module(states), self._after).float()


class AheadLayer:
    """An MTP layer with the interface of `Eagle3Layer`. numbers: count of its weights; head, embed: its own, None where
    it uses the target's."""

    def __init__(self, ahead: Ahead, model: PreTrainedModel, dtype: torch.dtype, where: str) -> None:
        """Build the layer from its tensors, rounded to `dtype` as the target's weights are.

        UsageError for tensors that do not fit its class, NotInThisVersion for a model whose layers cannot be built
        alone. where: the folder, for messages.
        """
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
        own_tables = {name: tensors.pop(name) for name in (EMBEDDING, HEAD) if name in tensors}
        rounded = {name for name, _ in parts.named_parameters()}
        parts.load_state_dict(
            {name: (tensor.to(dtype) if name in rounded else tensor).float() for name, tensor in tensors.items()},
            assign=True,
        )
        if any(tensor.is_meta for tensor in (*parts.parameters(), *parts.buffers())):
            raise _unbuilt(where, model, "it makes numbers of its own that no file holds")
        self.numbers = sum(tensor.numel() for tensor in tensors.values())
        self._parts = parts.eval().requires_grad_(False)
        if reason := dense.lay_out(self._parts):
            raise _unbuilt(where, model, reason)
        head, self.head, self.embed = OutputHead(model), None, None
        if HEAD in own_tables and not same(own_tables[HEAD].to(dtype), head.tensors["weight"] if head.plain else None):
            self.head, self.numbers = (
                OwnHead(own_tables[HEAD].to(dtype), head.after),
                self.numbers + own_tables[HEAD].numel(),
            )
        embed: Any = model.get_input_embeddings()
        if EMBEDDING in own_tables and not same(own_tables[EMBEDDING].to(dtype), embed.weight):
            self.embed = dense.DenseEmbedding(own_tables[EMBEDDING].to(dtype))
            self.numbers += own_tables[EMBEDDING].numel()

    def entered(self, states: torch.Tensor) -> torch.Tensor:
        """Return what the layer reads from the target's states: the states themselves."""
        return states

    def joined(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's input from embeddings and states, float32 [rows, width] each."""
        normed = self._parts.embedded(embedded), self._parts.state(states)
        return self._parts.joins(torch.cat(normed[::-1] if self._state_first else normed, -1))

    def forward(self, x: torch.Tensor, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """See `Eagle3Layer.forward`; x: [rows, width]."""
        positions = batch.positions[None]
        with attending(batch, states, threads):
            output = self._parts.layer(
                x[None],
                attention_mask=None,
                position_ids=positions,
                past_key_values=None,
                use_cache=False,
                position_embeddings=self._turning(x[None], positions),
            )
        output = output[0] if isinstance(output, tuple) else output
        return self._parts.last(output[0, batch.wanted])


def like(model: PreTrainedModel) -> int:
    """Return the index of the model's layer to build from: the last one with the attention type that the config gives
    for MTP layers, full attention by default."""
    config: Any = model.config.get_text_config(decoder=True)
    layer_types, layers = getattr(config, "layer_types", None) or (), int(config.num_hidden_layers)
    layer_type = (getattr(config, "mtp_layer_types", None) or ["full_attention"])[0]
    return max((index for index, kind in enumerate(layer_types) if kind == layer_type), default=layers - 1)


def _numbers(ahead: Ahead, parts: _Parts, model: PreTrainedModel, where: str) -> dict[str, torch.Tensor]:
    """Return tensors by the names of `parts`, in the form of its class; and copies of embedding and head by the files'
    names."""
    targets = {
        _name_in_files(name, ahead.layout): (name, tuple(tensor.shape)) for name, tensor in parts.state_dict().items()
    }
    expected = dict[str, tuple[int, ...]]()
    for file_name, (_, shape) in targets.items():
        expected |= {file_name: shape} if file_name in ahead.entries else dict(_flat(_pieces(file_name, shape)))
    embed: Any = model.get_input_embeddings()
    sizes, width = {EMBEDDING: embed.num_embeddings, HEAD: OutputHead(model).vocabulary}, int(parts.config.hidden_size)
    expected |= {name: (size, width) for name, size in sizes.items() if name in ahead.entries}
    tensors = _read(ahead, where)
    prefix = ahead.prefix
    named = {prefix + name: tensor for name, tensor in tensors.items()}
    check_tensors(named, {prefix + name: shape for name, shape in expected.items()}, where, AGAIN)
    numbers = {name: tensors[name] for name in sizes if name in tensors}
    for file_name, (name, shape) in targets.items():
        if file_name in tensors:
            numbers[name] = tensors[file_name]
        else:
            numbers[name] = torch.stack(
                [torch.cat([tensors[piece] for piece, _ in pieces]) for pieces in _pieces(file_name, shape)]
            )
    return numbers


def _name_in_files(name: str, layout: AheadLayout) -> str:
    """Return the files' name of a tensor of `_Parts`."""
    module, _, suffix = name.partition(".")
    return layout.layer + suffix if module == "layer" else f"{getattr(layout, module)}.{suffix}"


_Pieces = list[list[tuple[str, tuple[int, ...]]]]


def _pieces(name: str, shape: tuple[int, ...]) -> _Pieces:
    """Return the files' tensors that make up one tensor, per expert if it holds all experts."""
    root, _, leaf = name.rpartition(".")
    halves = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}.get(leaf)
    if len(shape) != 3 or halves is None:
        return [[(name, shape)]]
    experts, rows, columns = shape
    size = rows // len(halves), columns
    return [[(f"{root}.{expert}.{projection}.weight", size) for projection in halves] for expert in range(experts)]


def _flat(pieces: _Pieces) -> Iterator[tuple[str, tuple[int, ...]]]:
    return (piece for expert_pieces in pieces for piece in expert_pieces)


def _read(ahead: Ahead, where: str) -> dict[str, torch.Tensor]:
    """Read the layer's tensors, named without their prefix. UsageError for files that cannot be read."""
    tensors = dict[str, torch.Tensor]()
    try:
        for file in {entry.file for entry in ahead.entries.values()}:
            with safe_open(file, "pt") as opened:
                tensors |= {
                    name: opened.get_tensor(ahead.prefix + name)
                    for name, entry in ahead.entries.items()
                    if entry.file == file
                }
    except (SafetensorError, OSError) as error:
        raise UsageError(f"{where}: its weights cannot be read ({one_line(error)}). {AGAIN}") from None
    return tensors


def same(stored: torch.Tensor, reference: torch.Tensor | None) -> bool:
    """Return whether both hold the same numbers, each in its own dtype."""
    return reference is not None and stored.shape == reference.shape and torch.equal(stored.float(), reference.float())


def _unbuilt(where: str, model: PreTrainedModel, why: str) -> NotInThisVersion:
    return NotInThisVersion(
        f"{where}: its layer for further tokens (MTP) is made as those of {type(model).__name__}, and does not "
        f"draft by itself in this version: {why}. {OTHERWISE}"
    )
