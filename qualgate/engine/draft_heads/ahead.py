"""The multi-token prediction (MTP) layer in a model's own folder.

x = W [norm of a token's embedding ; norm of the state before it], then a decoder layer of the model's own kind and a
last norm: the output stands for the state at that token. DeepSeek-V3 introduced the parts (2412.19437, section 2.2);
other families name them differently, as in vLLM, SGLang and transformers. Needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.full_precision import FLOATS, has_no_say
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.shards import TensorEntry

SAID = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")  # how many there are, as configs say it
EMBEDDING, HEAD = "embed_tokens.weight", "shared_head.head.weight"  # copies that some files hold
OTHERWISE = "Draft by `quantize` instead: `draft: {quantize: mxfp4}`."
_AGAIN = "Fetch this checkpoint again; a library that saved it anew may have left these layers out."


@dataclass(frozen=True, slots=True, kw_only=True)
class AheadLayout:
    """Tensor names of one family. place: pattern before the names of the first layer's tensors; numbered: of each
    layer, {at} its number; behind: numbers continue those of the model's layers. The others are modules below `place`;
    layer: prefix of the decoder layer. state_first: the order in W's input."""

    name: str
    place: str
    numbered: str
    embedded: str
    state: str
    joins: str
    last: str
    layer: str = ""
    behind: bool = False
    state_first: bool = False


LAYOUTS = (
    AheadLayout(
        name="DeepSeek-V3", place=r"^(.*\.)?layers\.{at}\.", numbered=r"^(.*\.)?layers\.{at}\.", behind=True,
        embedded="enorm", state="hnorm", joins="eh_proj", last="shared_head.norm",
    ),
    AheadLayout(
        name="Qwen3-Next", place=r"^(model\.)?mtp\.", numbered=r"^(model\.)?mtp\.layers\.{at}\.",
        embedded="pre_fc_norm_embedding", state="pre_fc_norm_hidden", joins="fc", last="norm", layer="layers.0.",
    ),
    AheadLayout(
        name="MiMo", place=r"^(.*\.)?mtp_layers\.{at}\.", numbered=r"^(.*\.)?mtp_layers\.{at}\.",
        embedded="token_layernorm", state="hidden_layernorm", joins="input_proj", last="final_layernorm",
        state_first=True,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ahead:
    """An MTP layer in a folder. prefix: of its tensors' names; entries: by the rest of their names."""

    layout: AheadLayout
    prefix: str
    entries: Mapping[str, TensorEntry]

    def holds(self, name: str) -> bool:
        """Return whether a name of `ArmFootprint.left_out` (with * for numbers) covers tensors of this layer."""
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", self.prefix)
        return name.startswith(pattern) and not has_no_say(name.removeprefix(pattern), (0,))


def layer_ahead(folder: ModelFolder) -> Ahead:
    """Return the MTP layer of a model's folder. UsageError if it is missing or incomplete; NotInThisVersion for several
    layers or a quantized one. Loading checks the decoder layer inside."""
    text = folder.files.config.get("text_config") or folder.files.config
    layers = text.get("num_hidden_layers")
    for layout in LAYOUTS:
        first_layer = layers if layout.behind else 0
        if type(first_layer) is int and (ahead := _at(folder, layout, first_layer)) is not None:
            _check_count(folder, layout, first_layer, text)
            _check_floats(folder, ahead)
            _check_outer(folder, ahead, text.get("hidden_size"))
            return ahead
    raise UsageError(
        f"{folder.path}: `head: own` drafts by a layer that the model has for further tokens (MTP), and its files hold "
        f"none{_although(text)}: no `layers.{layers}.eh_proj`, `mtp.fc` or `mtp_layers.0.input_proj`. {OTHERWISE}"
    )


def _at(folder: ModelFolder, layout: AheadLayout, first_layer: int) -> Ahead | None:
    """Return the layer's tensors in this layout, named without their prefix; None if the folder holds none.

    first_layer: index of the first MTP layer.
    """
    pattern = re.compile(layout.place.replace("{at}", str(first_layer)))
    entries, prefix = dict[str, TensorEntry](), ""
    for name, entry in folder.shards.entries.items():
        match = None if layout.behind and has_no_say(name, entry.shape) else pattern.match(name)  # layers of pictures
        if match and match.group() == (prefix or match.group()) and not has_no_say(name[match.end() :], entry.shape):
            entries[name[match.end() :]], prefix = entry, match.group()
    return Ahead(layout=layout, prefix=prefix, entries=entries) if entries else None


def _check_count(folder: ModelFolder, layout: AheadLayout, first_layer: int, text: Mapping[str, Any]) -> None:
    """Refuse a folder with fewer MTP layers than its config declares, and one with several."""
    key = next((key for key in SAID if type(text.get(key)) is int), SAID[0])
    declared, present = text.get(key) or 1, 0
    while any(
        re.match(layout.numbered.replace("{at}", str(first_layer + present)), name) for name in folder.shards.entries
    ):
        present += 1
    if present < declared:
        raise UsageError(
            f"{folder.path}: its config says `{key}: {declared}`, and its files hold {present} such layers "
            f"({layout.name}'s layout). {_AGAIN}"
        )
    if present > 1:
        raise NotInThisVersion(
            f"{folder.path}: {present} layers for further tokens (MTP), one for each place of a draft, and this "
            f"version drafts by a model that has one. {OTHERWISE}"
        )


def _check_floats(folder: ModelFolder, ahead: Ahead) -> None:
    for name, entry in ahead.entries.items():
        if entry.dtype not in FLOATS:
            raise NotInThisVersion(
                f"{folder.path}: its layer for further tokens (MTP) is quantized ({ahead.prefix}{name} holds "
                f"{entry.dtype}), and in this version such a layer drafts as floats alone. {OTHERWISE}"
            )


def _check_outer(folder: ModelFolder, ahead: Ahead, width: Any) -> None:
    """Raise UsageError unless the norms and the projection around the layer have the shapes of this width."""
    layout = ahead.layout
    if type(width) is not int:
        raise UsageError(f"{folder.path}: its config does not say `hidden_size` as a whole number. {_AGAIN}")
    norms = {f"{name}.weight": (width,) for name in (layout.embedded, layout.state, layout.last)}
    for name, shape in {**norms, f"{layout.joins}.weight": (width, 2 * width)}.items():
        entry = ahead.entries.get(name)
        if entry is None or entry.shape != shape:
            problem = "is missing" if entry is None else f"holds {' x '.join(map(str, entry.shape))} numbers"
            raise UsageError(
                f"{folder.path}: {ahead.prefix}{name} {problem}, expected {' x '.join(map(str, shape))}, as "
                f"{layout.name} has them. {_AGAIN}"
            )


def _although(text: Mapping[str, Any]) -> str:
    setting = next((f"{key}: {text[key]}" for key in SAID if text.get(key)), "")
    return (
        f", although its config says `{setting}` (a library that saved it anew may have left them out)"
        if setting
        else ""
    )
