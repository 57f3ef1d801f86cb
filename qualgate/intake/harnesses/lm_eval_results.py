"""Read the results file that lm-eval writes beside its samples: the model, and what both sides must have alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.intake.harnesses.containers import read_json
from qualgate.intake.harnesses.fields import mapping
from qualgate.records.identity import content_hash

_DATE = re.compile(r"\d{4}-\d\d-\d\dT[\d.:-]+$")
HOW_RUN = {  # arguments of models that name the variant, or how it is run, and do not change what is asked
    "pretrained", "model", "base_url", "tokenizer", "tokenizer_backend", "tokenizer_mode", "revision", "subfolder",
    "gguf_file", "peft", "delta", "dtype", "quantization", "quantize", "load_format", "load_in_4bit", "load_in_8bit",
    "bnb_4bit_quant_type", "bnb_4bit_compute_dtype", "autogptq", "gptqmodel", "kv_cache_dtype", "speculative_config",
    "device", "device_map", "device_map_option", "parallelize", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size", "gpu_memory_utilization", "max_memory_per_gpu", "max_cpu_memory", "offload_folder",
    "swap_space", "enforce_eager", "max_num_seqs", "batch_size", "max_batch_size", "num_concurrent", "max_retries",
    "timeout", "use_cache", "trust_remote_code", "attn_implementation", "header", "verify_certificate", "api_key",
    "auth_token", "disable_log_stats", "tokenized_requests", "model_dtype", "draft", "drafts",
}  # fmt: skip
OF_TASK = ("output_type", "num_fewshot", "repeats", "generation_kwargs", "filter_list", "description", "doc_to_text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a results file says about one task."""

    model: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    samples: int | None = None  # documents that lm-eval evaluated


def results_beside(samples: Path, task: str) -> Results:
    """Read the results file of the same run as a samples file; an empty one if there is none."""
    date = _DATE.search(samples.stem)
    path = samples.with_name(f"results_{date[0]}.json") if date else None
    if path is None or not path.is_file():
        return Results()
    body = read_json(path)
    if not isinstance(body, dict):
        return Results()
    config, of_task = mapping(body.get("config")), mapping(mapping(body.get("configs")).get(task))
    settings = {
        "the task's version": str(mapping(body.get("versions")).get(task, "")),
        "few-shots": str(mapping(body.get("n-shot")).get(task, "")),
        "the chat template": str(body.get("chat_template_sha") or "none")[:12],
        "the system instruction": str(body.get("system_instruction_sha") or "none")[:12],
        "few-shots as turns": str(bool(body.get("fewshot_as_multiturn"))),
        "generation settings given to lm-eval": str(config.get("gen_kwargs") or "none"),
    }
    settings |= {f"the model's {key}": _short(value) for key, value in _arguments(config) if key not in HOW_RUN}
    settings |= {f"the task's {key}": _short(of_task[key]) for key in OF_TASK if key in of_task}
    counted = mapping(mapping(body.get("n-samples")).get(task)).get("effective")
    return Results(
        model=str(body.get("model_name") or mapping(config.get("model_args")).get("pretrained") or ""),
        settings=settings,
        samples=counted if type(counted) is int else None,
    )


def _arguments(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The model's arguments, which older versions write as a text."""
    given = config.get("model_args")
    if isinstance(given, str):
        for part in given.split(","):
            key, sign, value = part.partition("=")
            if sign:
                yield key.strip(), value.strip()
    yield from mapping(given).items()


def _short(value: Any) -> str:
    """A value for a line; a long one by its hash."""
    text = str(value)
    return text if len(text) <= 60 else content_hash(text)[:12]
