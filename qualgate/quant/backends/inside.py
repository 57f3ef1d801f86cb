# pyrefly: ignore-errors[missing-import]
"""Runs inside a backend's own interpreter, which has that library and not qualgate: ORDER.json in, a folder out.

Standard output carries JSON lines: {"progress": text}, and at the end {"done": {"patches": [...]}}, {"error": text}, or
{"refused": text} for an order that this library cannot fill. When standard input ends, whoever gave the order is gone.
The libraries are patched here, in this process alone, where they cannot run without a GPU; each patch is reported.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

PATCHES: list[str] = []


class Refused(Exception):
    """The library works, but not for this model."""


def with_gptqmodel(order: dict[str, Any]) -> None:
    """Fill the order with gptqmodel."""
    from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

    # Act-order off means plain groups here: gptqmodel's own default reorders groups behind one's back.
    options = {}
    if order["method"] == "gptq":
        options = {"desc_act": bool(order["act_order"]), "static_groups": order["act_order"] == "static"}
        options["act_group_aware"] = False
    config = QuantizeConfig(
        bits=order["bits"],
        group_size=order["group_size"],
        sym=order["symmetric"],
        method=order["method"],
        format=order["format"] if order["method"] == "gptq" else "gemm",
        **options,
    )
    say("loading the model")
    model = GPTQModel.load(order["model"], config, device="cuda" if _has_gpu() else "cpu")
    say(f"quantizing with {len(order['texts'])} calibration cases")
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in order["texts"]]
    options = {}
    if order["method"] == "awq" and not _has_gpu():
        options = {"backend": BACKEND.AWQ_TORCH}  # left to itself it takes a CUDA kernel, here as well
    model.quantize(rows, batch_size=1, **options)
    say("writing")
    model.save(order["out"])


def with_llmcompressor(order: dict[str, Any]) -> None:
    """Fill the order with llmcompressor."""
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier
    from llmcompressor.pipelines.cache import IntermediatesCache
    from transformers import AutoModelForCausalLM

    if not _has_gpu():
        # Pinned memory is for copies to a GPU; asking for it without one raises.
        IntermediatesCache.pin_memory = lambda self, *args, **kwargs: None
        PATCHES.append("IntermediatesCache.pin_memory does nothing")
    options: dict[str, Any] = {"targets": ["Linear"], "ignore": ["lm_head"]}
    weights: dict[str, Any] = {"config_groups": _integers(order), "ignore": ["lm_head"]}
    recipe: list[Any] = {
        "gptq": lambda: [GPTQModifier(**weights, actorder=order["act_order"] or None)],
        "awq": lambda: [AWQModifier(), QuantizationModifier(**weights)],
        "smoothquant": lambda: [
            SmoothQuantModifier(smoothing_strength=0.5),
            GPTQModifier(scheme="W8A8", **options),
        ],
        "fp8": lambda: [QuantizationModifier(config_groups=_floats8(order), ignore=["lm_head"])],
        "nvfp4": lambda: [QuantizationModifier(scheme="NVFP4A16", **options)],
        "mxfp4": lambda: [QuantizationModifier(scheme="MXFP4A16", **options)],
    }[order["method"]]()
    say("loading the model")
    model = AutoModelForCausalLM.from_pretrained(order["model"], dtype="auto", local_files_only=True)
    data: dict[str, Any] = {}
    if order["texts"]:
        rows_of = {"input_ids": order["texts"], "attention_mask": [[1] * len(ids) for ids in order["texts"]]}
        data = {
            "dataset": Dataset.from_dict(rows_of),
            "num_calibration_samples": len(order["texts"]),
            "max_seq_length": max(map(len, order["texts"])),
            "shuffle_calibration_samples": False,
        }
    say(f"quantizing with {len(order['texts'])} calibration cases")
    oneshot(model=model, recipe=recipe, **data)
    say("writing")
    model.save_pretrained(order["out"], save_compressed=True)


def _integers(order: dict[str, Any]) -> dict[str, Any]:
    """Return llm-compressor's `config_groups` for integer weights."""
    rows = order["group_size"] == -1
    return {
        "group_0": {
            "targets": ["Linear"],
            "weights": {
                "num_bits": order["bits"],
                "type": "int",
                "symmetric": order["symmetric"],
                "strategy": "channel" if rows else "group",
                "group_size": None if rows else order["group_size"],
            },
        }
    }


def _floats8(order: dict[str, Any]) -> dict[str, Any]:
    """Return llm-compressor's `config_groups` for FP8 weights, with activations rounded only if the order says so."""
    # Its own schemes, FP8_DYNAMIC and FP8_BLOCK, always round activations too.
    float8: dict[str, Any] = {"num_bits": 8, "type": "float", "symmetric": True}
    tiled = order["granularity"] == "block"
    return {
        "group_0": {
            "targets": ["Linear"],
            "weights": {**float8, **({"strategy": "block", "block_structure": [128, 128]} if tiled else
                                     {"strategy": "channel"})},
            "input_activations": {**float8, "strategy": "token", "dynamic": True} if order["activations"] else None,
        }
    }  # fmt: skip


def with_auto_gptq(order: dict[str, Any]) -> None:
    """Fill the order with auto-gptq."""
    import torch

    if not _has_gpu():
        import auto_gptq.modeling._base as base
        import auto_gptq.modeling._utils as utils

        # It keeps activations on a GPU it takes for granted, and waits for it.
        base.CUDA_0 = utils.CUDA_0 = torch.device("cpu")
        torch.cuda.synchronize = torch.cuda.empty_cache = lambda *args, **kwargs: None  # type: ignore[assignment]
        PATCHES.append("auto_gptq CUDA_0 is the CPU; torch.cuda.synchronize and empty_cache do nothing")
    from auto_gptq import BaseQuantizeConfig
    from auto_gptq.modeling import GPTQ_CAUSAL_LM_MODEL_MAP

    model = _legacy_model(order["model"])
    kind = model.config.model_type
    if kind not in GPTQ_CAUSAL_LM_MODEL_MAP:
        raise Refused(f"it does not know the architecture {kind}. Use gptqmodel, its successor.")
    config = BaseQuantizeConfig(
        bits=order["bits"],
        group_size=order["group_size"],
        sym=order["symmetric"],
        desc_act=bool(order["act_order"]),
        static_groups=order["act_order"] == "static",
        model_name_or_path=order["model"],
    )
    # from_pretrained refuses to begin without CUDA; the constructor does not.
    model_to_quantize = GPTQ_CAUSAL_LM_MODEL_MAP[kind](model, False, config)
    say(f"quantizing with {len(order['texts'])} calibration cases")
    model_to_quantize.quantize(
        [{"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
         for ids in order["texts"]],
        batch_size=1, use_triton=False,
    )  # fmt: skip
    say("writing")
    model_to_quantize.save_quantized(order["out"], use_safetensors=True)


def with_autoawq(order: dict[str, Any]) -> None:
    """Fill the order with AutoAWQ. Raises Refused, as `with_auto_gptq` does, for a model it would read wrongly."""
    import torch
    from awq import AutoAWQForCausalLM

    _legacy_model(order["model"])  # refuses what transformers 4 would read wrongly
    with _legacy_folder(order["model"]) as folder:
        say("loading the model")
        model = AutoAWQForCausalLM.from_pretrained(
            folder, device_map="cuda" if _has_gpu() else "cpu", safetensors=True, torch_dtype=torch.float16
        )
        longest = max(map(len, order["texts"]))
        say(f"quantizing with {len(order['texts'])} calibration cases")
        model.quantize(
            None,  # a tokenizer, which token ids do not need
            quant_config={
                "w_bit": 4, "q_group_size": order["group_size"], "zero_point": not order["symmetric"],
                "version": "GEMM",
            },
            calib_data=order["texts"], max_calib_samples=len(order["texts"]), max_calib_seq_len=longest,
        )  # fmt: skip
        say("writing")
        model.save_quantized(order["out"], safetensors=True)


def _legacy_model(folder: str) -> Any:
    """Return the model as transformers 4 loads it, its config given the names that this version knows."""
    from transformers import AutoModelForCausalLM

    say("loading the model")
    with _legacy_folder(folder) as legacy:
        return AutoModelForCausalLM.from_pretrained(legacy, torch_dtype="auto", local_files_only=True)


@contextlib.contextmanager
def _legacy_folder(folder: str) -> Any:
    """Yield a copy of `folder` (by links) whose config.json is written for transformers 4.

    dtype and rotary settings moved in version 5, and an unknown key is not an error there but a model that computes
    something else.
    """
    import tempfile

    config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    rope = config.pop("rope_parameters", None)
    if rope:
        if rope.get("rope_type", "default") != "default":
            raise Refused(
                f"the model's rotary embedding, {rope['rope_type']!r}, cannot be handed to transformers 4. "
                "Use gptqmodel."
            )
        config["rope_theta"] = rope["rope_theta"]
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    with tempfile.TemporaryDirectory() as legacy:
        for file in Path(folder).iterdir():
            if file.name not in ("config.json", "tokenizer_config.json"):
                os.symlink(file, Path(legacy) / file.name)
        (Path(legacy) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield legacy


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


BACKENDS = {
    "gptqmodel": with_gptqmodel,
    "llmcompressor": with_llmcompressor,
    "auto-gptq": with_auto_gptq,
    "autoawq": with_autoawq,
}


def answer(**word: Any) -> None:
    """Write one line to whoever gave the order."""
    _ANSWERS.write(json.dumps(word) + "\n")
    _ANSWERS.flush()


def say(progress: str) -> None:
    """Tell how far it is, in words."""
    answer(progress=progress)


def end_with_the_one_who_asked() -> None:
    """Nobody else would stop hours of work whose result nobody takes."""
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    # Libraries print to standard output; it is kept for answers, and theirs goes to the log.
    _ANSWERS = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    threading.Thread(target=end_with_the_one_who_asked, daemon=True).start()
    try:
        wanted = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        if wanted["device"] == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported
        BACKENDS[wanted["backend"]](wanted)
    except BaseException as error:
        text = " ".join(f"{error}".split())[:600]
        answer(**({"refused": text} if isinstance(error, Refused) else {"error": f"{type(error).__name__}: {text}"}))
        raise
    answer(done={"patches": PATCHES})
    os._exit(0)  # some of them leave threads that never end
