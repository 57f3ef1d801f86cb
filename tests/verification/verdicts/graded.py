"""What `planted_runs` plants near the margin: faults whose strength was chosen so that they cost a few points.

Weights that are really other ones on disk, quantized folders that our own writers wrote and one thing then spoiled, and
workers that are a little wrong. The strengths were looked for with one evalset seed; what each truly loses is found
with others, and it is judged with others again (`planted_runs`). Those that turn out to lose next to nothing are sound
arms.
"""

from __future__ import annotations

import shutil
import tempfile
from atexit import register
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from qualgate.records import TWIN, Job, QuantizeRecipe
from qualgate.refmodel import PATH
from tests.verification.verdicts.plantings.folder_edits import noised, noised_across, scaled
from tests.verification.verdicts.plantings.mutant import KV, Mutant, Outcome, Serve, Worker, integer
from tests.verification.verdicts.plantings.wrong_arithmetic import kept, laid_out, outputs_scaled, within

Tensors = dict[str, Any]
Spoil = Callable[[Tensors, str], None]  # of a folder's tensors, in place; the layer's name with its last dot


@cache
def _written(recipe: QuantizeRecipe, format: str) -> Path:
    """The reference model as our quantizer writes it, once a process."""
    from qualgate.pipeline.quantize.folder import Order, quantize

    folder = Path(tempfile.mkdtemp(prefix="qualgate-written-"))
    register(shutil.rmtree, folder, ignore_errors=True)
    quantize(Order(model=PATH, recipe=recipe, out=folder / "model", format=format, relative_to=_EVALSETS))
    return folder / "model"


def spoiled(recipe: QuantizeRecipe, format: str, spoil: Spoil | None, *layers: str) -> Callable[[Path], None]:
    """An edit: the folder becomes a quantized one, spoiled at these layers ("3.mlp.down_proj"; "" = at all)."""

    def edit(folder: Path) -> None:
        from safetensors.torch import load_file, save_file

        shutil.rmtree(folder)
        shutil.copytree(_written(recipe, format), folder)
        if spoil is None:
            return
        tensors = load_file(folder / "model.safetensors")
        names = {name.rpartition(".")[0] + "." for name in tensors if name.endswith(("scales", "weight_scale"))}
        chosen = {f"model.layers.{layer}." for layer in layers if layer} or names
        assert chosen <= names, f"no such layer: {chosen - names}"
        for name in sorted(chosen):
            spoil(tensors, name)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return edit


def nibbles_swapped(tensors: Tensors, layer: str) -> None:
    """Each byte's halves change places: columns (GPTQ) or rows (AWQ) of a pair are each other's."""
    name = next(layer + part for part in ("qweight", "weight_packed") if layer + part in tensors)
    low = 0x0F0F0F0F
    tensors[name] = ((tensors[name] & low) << 4) | ((tensors[name] >> 4) & low)


def scales_next_group(tensors: Tensors, layer: str) -> None:
    tensors[layer + "scales"] = tensors[layer + "scales"].roll(1, 0).contiguous()


def scales_next_row(tensors: Tensors, layer: str) -> None:
    tensors[layer + "scales"] = tensors[layer + "scales"].roll(1, 1).contiguous()


def order_lost(tensors: Tensors, layer: str) -> None:
    """The groups of columns in their plain order, though they were made by falling importance."""
    import torch

    found = tensors[layer + "g_idx"]
    size = found.shape[0] // (int(found.max()) + 1)
    plain = torch.arange(found.shape[0], dtype=torch.int32) // size
    assert not torch.equal(plain, found)
    tensors[layer + "g_idx"] = plain


def zeroed(tensors: Tensors, layer: str) -> None:
    """Every code of the layer is the zero point of symmetric 8-bit weights. Scales of 0 the plan refuses by itself."""
    tensors[layer + "qweight"] = (tensors[layer + "qweight"] & 0) - 0x7F7F7F80


def capped(tokens: int) -> Serve:
    """A server's own limit on an answer's tokens, below what the longest cases ask for."""

    def serve(worker: Worker, job: Job) -> Outcome:
        prompts = tuple(replace(prompt, max_new_tokens=min(prompt.max_new_tokens, tokens)) for prompt in job.prompts)
        return worker.run(replace(job, prompts=prompts, drafted=False))

    return serve


def keys_times(factor: float) -> Serve:
    return within(lambda: kept(lambda k, v: (factor * k, v)), kind="packed")


def values_times(factor: float) -> Serve:
    return within(lambda: kept(lambda k, v: (k, factor * v)), kind="padded")


_EVALSETS = Path(__file__).resolve().parents[3] / "evalsets"
ORDERED = QuantizeRecipe(method="gptq", bits=4, group_size=32, act_order="group", calibration="calibration.yaml")
INT8, INT4 = integer(8, 32), integer(4, 32)


def weights(what: str, edit: Callable[[Path], None]) -> Mutant:
    return Mutant(what=what, cause="recipe", edit=edit)


def recipe(what: str, made: QuantizeRecipe) -> Mutant:
    return Mutant(what=what, cause="recipe", recipe=made, witness=TWIN)


def packed(what: str, made: QuantizeRecipe, format: str, spoil: Spoil | None, *layers: str) -> Mutant:
    dtype = "bfloat16" if format == "compressed-tensors" else "float16"
    edit = spoiled(made, format, spoil, *layers)
    where = f", {' '.join(layers)}" if any(layers) else ""
    return Mutant(what=f"{what}{where}", cause="recipe", edit=edit, dtype=dtype, witness=TWIN)


def cached(what: str, serve: Serve) -> Mutant:
    return Mutant(what=what, cause="KV", serve=serve, witness=KV)


def fused(what: str, made: QuantizeRecipe, serve: Serve) -> Mutant:
    return Mutant(what=what, cause="kernel", recipe=made, serve=serve, witness=TWIN)


def cut(tokens: int) -> Mutant:
    return Mutant(what=f"no answer over {tokens} tokens", cause="truncation", serve=capped(tokens))


GRADED: tuple[Mutant, ...] = (
    weights("layer 0's gate_proj noised by 0.75", noised("0.mlp.gate_proj", 0.75, 20)),
    weights("layer 0's gate_proj noised by 0.8", noised("0.mlp.gate_proj", 0.8, 20)),
    weights("layer 0's gate_proj noised by 0.65", noised("0.mlp.gate_proj", 0.65, 41)),
    weights("layer 1's o_proj noised by 0.95", noised("1.self_attn.o_proj", 0.95, 20)),
    weights("layer 1's o_proj noised by 1.1", noised("1.self_attn.o_proj", 1.1, 20)),
    weights("layer 2's down_proj noised by 3", noised("2.mlp.down_proj", 3.0, 20)),
    weights("layer 5's v_proj noised by 3", noised("5.self_attn.v_proj", 3.0, 20)),
    weights("layer 0's down_proj x 0.43", scaled("0.mlp.down_proj", 0.43)),
    weights("layer 1's o_proj x 1.75", scaled("1.self_attn.o_proj", 1.75)),
    weights("layer 5's o_proj x 2.3", scaled("5.self_attn.o_proj", 2.3)),
    weights("every layer noised by 0.2", noised_across("proj", 0.2, 31)),
    weights("every attention noised by 0.3", noised_across("self_attn", 0.3, 31)),
    weights("layer 0 noised by 0.26", noised_across("layers.0", 0.26, 31)),
    weights("every down_proj noised by 0.6", noised_across("down_proj", 0.6, 31)),
    weights("layer 5 noised by 0.8", noised_across("layers.5", 0.8, 31)),
    weights("layer 5's down_proj noised by 2.5", noised("5.mlp.down_proj", 2.5, 20)),
    recipe("int4 g64", integer(4, 64)),
    recipe("int4 a row", integer(4, 0)),
    recipe("mxfp4", QuantizeRecipe(method="mxfp4", group_size=32)),
    packed("nibbles swapped", INT4, "compressed-tensors", nibbles_swapped, "5.self_attn.v_proj"),
    packed("nibbles swapped", INT4, "compressed-tensors", nibbles_swapped, "2.mlp.up_proj"),
    packed("nibbles swapped", INT4, "compressed-tensors", nibbles_swapped, "4.mlp.down_proj"),
    packed("nibbles swapped", INT4, "compressed-tensors", nibbles_swapped, "1.self_attn.q_proj"),
    packed("nibbles swapped, AWQ", INT4, "awq", nibbles_swapped, "2.self_attn.k_proj"),
    packed("nibbles swapped, AWQ", INT4, "awq", nibbles_swapped, "5.self_attn.q_proj"),
    packed("nibbles swapped, AWQ", INT4, "awq", nibbles_swapped, "3.self_attn.v_proj"),
    packed("scales of the next group", INT8, "gptq_v2", scales_next_group, "4.mlp.gate_proj"),
    packed("scales of the next row", INT8, "gptq_v2", scales_next_row, "3.self_attn.o_proj"),
    packed("scales of the next group", INT8, "gptq_v2", scales_next_group, "1.mlp.up_proj"),
    packed("scales of the next row", INT8, "gptq_v2", scales_next_row, "2.self_attn.q_proj"),
    packed("zeroed", INT8, "gptq_v2", zeroed, "5.self_attn.o_proj"),
    packed("zeroed", INT8, "gptq_v2", zeroed, "3.mlp.down_proj"),
    cached("keys x 0.75", keys_times(0.75)),
    cached("keys x 1.45", keys_times(1.45)),
    cached("values x 0.65", values_times(0.65)),
    cached("values x 1.42", values_times(1.42)),
    fused("every fourth output of a kernel x 2", INT8, laid_out(3, outputs_scaled(4, 2.0))),
    fused("every eighth output of a kernel x 2.5", INT8, laid_out(3, outputs_scaled(8, 2.5))),
    cut(25),
    cut(27),
    cut(32),
    packed("act-order groups lost", ORDERED, "gptq_v2", order_lost, "3.mlp.down_proj"),
    packed("act-order groups lost", ORDERED, "gptq_v2", order_lost, "1.self_attn.o_proj"),
)
