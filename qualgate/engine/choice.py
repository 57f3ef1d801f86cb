"""Choose the engine for a model by trying it at load time, not from a list of architectures.

Packed passes need a model whose whole state is keys and values, which attends through transformers' interface, and
whose rows do not depend on each other to the bit. Plain decoders run in C. All others run in padded batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from qualgate.engine import dense, norms
from qualgate.engine.attention import KeysValues, recycled
from qualgate.engine.decoder import ModelDecoder, open_model
from qualgate.engine.graphs import graphed
from qualgate.engine.head import OutputHead
from qualgate.engine.packed import PackedEngine
from qualgate.engine.padded.engine import open_padded
from qualgate.engine.padded.self_check import check_runs_right
from qualgate.engine.plain_decoder import FastDecoder, Unfit
from qualgate.engine.room import is_short, room
from qualgate.engine.row_check import (
    Logits,
    eager,
    far_from,
    noise,
    read,
    read_both,
    row_variant,
    same_bits,
    texts,
    whole,
)
from qualgate.engine.schedule import Limits
from qualgate.engine.spread import layers_by_device
from qualgate.errors import NotInThisVersion, QualgateError, one_line
from qualgate_kernels import availability
from qualgate_kernels.cpu import decode, paged
from qualgate_kernels.cpu.library import threaded
from qualgate_kernels.kept import form_of
from qualgate_kernels.paged import Seen

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

    from qualgate.engine.request import Engine

KINDS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen engine. kind: "plain" runs in C, "packed" through the model's own modules, "padded" in padded batches;
    because: why not the kind before. seen: attention parameters by layer; numbers: stored per position in all layers;
    heads: key heads in all layers; whole: see `OutputHead`; cache_form: of keys and values, one of `kept.FORMS`;
    scales: fp8 scales of keys and values by layer, {} if all are 1; rounded: the dtype to which stored activations are
    rounded, "float32" for none."""

    kind: Literal["plain", "packed", "padded"]
    because: str = ""
    seen: dict[int, Seen] = field(default_factory=dict)
    numbers: int | None = None
    heads: int = 0
    whole: bool = True
    cache_form: str = "float32"
    scales: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    rounded: str = "float32"

    @property
    def position_bytes(self) -> int:
        """Bytes of one position's keys, values and scales; 1 if unknown."""
        form = form_of(self.cache_form)
        return max(1, (self.numbers or 0) // form.packed * form.size + 4 * form.scales * self.heads)


def choose_engine(model: PreTrainedModel) -> Choice:
    """Return the engine for `model`, and leave the model prepared for it. NotInThisVersion if no engine runs it."""
    tried = _packed(model)
    if isinstance(tried, Choice):
        return tried
    norms.take_back(model)
    dense.take_back(model)
    return Choice(kind="padded", because=tried, numbers=check_runs_right(model))


def rounding(model: PreTrainedModel, choice: Choice, stored: str) -> Choice:
    """Return the choice with stored activations rounded to the dtype `stored`. NotInThisVersion if the model's rows
    then depend on each other."""
    cache_form = stored if stored == "bfloat16" else choice.cache_form  # the same bits in half of the memory
    rounded_choice, reason = replace(choice, rounded=stored, cache_form=cache_form), choice.because
    if choice.kind == "packed":
        samples = texts(model)
        try:
            with threads_of_kernels(), open_decoder(model, rounded_choice) as (decoder, head):
                expected = read(decoder, head, samples, whole(samples))
                reason = row_variant(decoder, head, samples, expected)
        except Exception as error:  # whatever an architecture does in a dtype of half the width
            if is_short(error):
                raise
            reason = f"it fails with {one_line(error)}"
    if choice.kind == "padded" or (choice.kind == "packed" and reason):
        raise NotInThisVersion(
            f"what a server stores is not rounded for it in this version ({reason}). Write `arithmetic: float32`, or "
            "leave the key out."
        )
    return rounded_choice


@contextmanager
def open_engine(
    model: PreTrainedModel, choice: Choice, stored: str = "float32", *, limits: Limits | None = None
) -> Iterator[Engine]:
    """Yield the engine of a model, in inference mode, for the length of the block.

    stored: the dtype in which a server would store activations; what it would not hold is counted in `Engine.overflow`.
    """
    if choice.kind == "padded":
        with open_padded(model, stored) as engine:
            yield engine
        return
    decoding = open_decoder(model, choice, stored)
    with (
        threads_of_kernels() as threads,
        decoding as (decoder, head),
        recycled(choice.cache_form, choice.scales) as states,
    ):
        yield PackedEngine(
            graphed(decoder, head.device),
            head,
            states,
            room=min(
                int(room(states.size, device) / share) for device, share in layers_by_device(model, head.device).items()
            ),
            position_bytes=choice.position_bytes,
            threads=threads,
            limits=limits or Limits(),
        )


@contextmanager
def open_decoder(
    model: PreTrainedModel, choice: Choice, stored: str = "float32"
) -> Iterator[tuple[ModelDecoder | FastDecoder, OutputHead]]:
    """Yield the decoder for packed passes of a model, and its output head, in inference mode."""
    head, in_c = OutputHead(model, choice.rounded), choice.kind == "plain"
    head.whole = choice.whole
    with open_model(model, head, stored, rounded="float32" if in_c else choice.rounded) as decoder:
        yield FastDecoder(model, choice.seen, stored, rounded=choice.rounded) if in_c else decoder, head


@contextmanager
def threads_of_kernels() -> Iterator[int]:
    """Limit torch to one thread and give its threads to our kernels, whose rows do not depend on threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threaded(threads):
            yield threads
    finally:
        torch.set_num_threads(threads)


def _packed(model: PreTrainedModel) -> Choice | str:
    """Return the choice, or why packed passes do not work for `model`."""
    if lack := _missing(model.device):
        return lack
    config = model.config.get_text_config(decoder=True)
    if reason := _other_state(config):
        return reason
    on_gpu = availability.on_triton(model.device)
    if reason := dense.lay_out(model):
        return reason
    if on_gpu:
        norms.lay_out(model)
    head = OutputHead(model)
    try:
        with threads_of_kernels(), open_model(model, head) as decoder:
            return _tried(model, decoder, head)
    except Exception as error:  # whatever an architecture does with an attention that it was not made for
        if is_short(error):
            raise
        return str(error) if isinstance(error, QualgateError) else f"it fails with {one_line(error)}"


def _missing(device: torch.device) -> str:
    """Return why there are no kernels for packed passes on `device`; "" if there are."""
    if availability.on_triton(device):
        return ""
    if device.type == "cpu":
        return paged.missing() or decode.missing()
    return f"no packed passes on {device.type} ({availability.unavailable(device)})"


def _other_state(config: PreTrainedConfig) -> str:
    """Return what state a model has besides ordinary keys and values; "" if none."""
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    for layer in DynamicCache(config=config).layers:
        if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
            return f"it keeps a {type(layer).__name__}"
    if strange := set(getattr(config, "layer_types", None) or ()) - KINDS:
        return f"it has layers of {', '.join(sorted(strange))}"
    return ""


def _tried(model: PreTrainedModel, decoder: ModelDecoder, head: OutputHead) -> Choice | str:
    """Try packed passes and return the choice of an engine, or the reason why they do not work for `model`."""
    samples = texts(model)
    states = KeysValues()
    expected, finished = read_both(decoder, samples, states)
    head.whole = all(same_bits(*pair) for pair in zip(expected, finished, strict=True))
    if not head.whole:
        expected = finished
    choice = Choice(
        kind="packed",
        seen=states.seen,
        numbers=sum(states.numbers.values()),
        heads=sum(blocks.kv_heads for blocks in states.layers.values()),
        whole=head.whole,
    )
    if reason := _other_windows(model.config.get_text_config(decoder=True), states.seen):
        return reason
    finite = all(bool(logits.isfinite().all()) for logits in expected)  # else the run names it, case by case
    if finite and not far_from(expected, eager(model, samples)) <= noise(model):
        return "it gives other logits than by transformers' eager code"
    chosen = _faster(model, choice, head, samples, expected, finite)
    if chosen.kind == "packed" and finite and (reason := row_variant(decoder, head, samples, expected)):
        return reason
    return chosen


def _faster(
    model: PreTrainedModel, choice: Choice, head: OutputHead, samples: Any, expected: Logits, finite: bool
) -> Choice:
    """Return the choice of the plain decoder if it gives the results of the model's own modules, `expected`."""

    def without(because: str) -> Choice:
        return replace(choice, because=because)

    if availability.on_triton(head.device):
        return without("on a GPU a model's own modules make its passes")
    if not choice.whole:
        return without("it changes its logits after the head")
    try:
        fast = FastDecoder(model, choice.seen)
    except (Unfit, AttributeError) as reason:
        return without(str(reason))
    fast_logits = read(fast, head, samples, whole(samples))
    if finite:
        if not far_from(fast_logits, expected) <= noise(model):
            return without("in C it gives other logits than by its own modules")
        if reason := row_variant(fast, head, samples, fast_logits):
            return without(f"in C it gives {reason}")
    return replace(choice, kind="plain")


def _other_windows(config: PreTrainedConfig, seen: dict[int, Seen]) -> str:
    """Return the reason if a layer's window lives in the model's own mask and not in its attention call; "" if none
    does."""
    from transformers.cache_utils import DynamicCache, DynamicSlidingWindowLayer

    for index, layer in enumerate(DynamicCache(config=config).layers):
        window = layer.sliding_window if isinstance(layer, DynamicSlidingWindowLayer) else 0
        if index not in seen:
            return f"layer {index} does not attend as others do"
        if seen[index].window != window:
            return f"layer {index} sees {window or 'all'} positions and asks for {seen[index].window or 'all'}"
    return ""
