"""How each server reads what a folder can say twice: messages and the documentation draw from this table alone."""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = {
    "transformers": "5.23.0 (run)",
    "vllm": "by its source, of several versions; not run",
    "sglang": "by two files of its source, else as vLLM; not run",
    "llama.cpp": "as far as its converter is known; not run",
}
NAMES = {"transformers": "transformers", "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One situation, and what each server makes of it; "" where a server does not read the format.

    source: the files that were read, or "run" where the library itself was run.
    """

    formats: str
    situation: str
    transformers: str
    vllm: str
    sglang: str
    llama_cpp: str
    source: str

    @property
    def sentence(self) -> str:
        """What the servers do, in one sentence."""
        texts = dict(zip(NAMES.values(), (self.transformers, self.vllm, self.sglang, self.llama_cpp), strict=True))
        by_text: dict[str, list[str]] = {}
        for server, text in texts.items():
            if text:
                by_text.setdefault(text, []).append(server)
        parts = []
        for text, (first, *others) in by_text.items():
            parts.append(f"{first} {text}" + (f" ({' and '.join(others)} too)" if others else ""))
        return "; ".join(parts)


_LISTED = "quantizers/quantizers_utils.py should_convert_module; quantization/utils/quant_utils.py is_layer_skipped"
_INITIALIZES = "expects codes and scales and starts the layer from random or empty ones"
_KEEPS = "would read it as a plain layer"

READINGS = {
    "plain: compressed-tensors": Reading(
        formats="compressed-tensors",
        situation="a plain layer that `targets` name and `ignore` does not: whole names, `re:` from the start, classes",
        transformers=_INITIALIZES,
        vllm=_INITIALIZES,
        sglang=_INITIALIZES,
        llama_cpp="",
        source="compressed-tensors 0.20.0 run (KL is NaN); vLLM compressed_tensors/utils.py should_ignore_layer",
    ),
    "plain: fp8": Reading(
        formats="fp8",
        situation="a plain layer that `modules_to_not_convert` or `ignored_layers` does not name: transformers takes a "
        "name's start or end, vLLM and SGLang the whole name",
        transformers="on a GPU multiplies its rounded weights with no scale",
        vllm="rounds its weights to fp8 and multiplies them with a scale that was never set",
        sglang="rounds its weights to fp8 and multiplies them with a scale that was never set",
        llama_cpp="",
        source=f"integrations/finegrained_fp8.py; {_LISTED}",
    ),
    "plain: fbgemm_fp8": Reading(
        formats="fbgemm_fp8",
        situation="a plain layer that `modules_to_not_convert` does not name: transformers takes a name's start or "
        "end, vLLM the whole name",
        transformers=_INITIALIZES,
        vllm=_INITIALIZES,
        sglang="",
        llama_cpp="",
        source=f"integrations/fbgemm_fp8.py; vLLM fbgemm_fp8.py; {_LISTED}",
    ),
    "plain: awq": Reading(
        formats="awq",
        situation="a plain layer that `modules_to_not_convert` does not name; transformers takes a name's start or "
        "end, AutoAWQ, vLLM and SGLang any part of it",
        transformers=_INITIALIZES,
        vllm="takes plain layers from the headers where the list is empty, and else expects codes",
        sglang=_INITIALIZES,
        llama_cpp="",
        source=f"integrations/awq.py; awq_marlin.py maybe_update_config; {_LISTED}",
    ),
    "plain: auto-round": Reading(
        formats="auto-round",
        situation="a plain layer of the blocks to which `extra_config` gives no 16 bits",
        transformers=_INITIALIZES,
        vllm=_INITIALIZES,
        sglang=_INITIALIZES,
        llama_cpp="",
        source="AutoRound 0.16.1 inference/convert_model.py; vLLM auto_round.py get_layer_config",
    ),
    "plain: gptq": Reading(
        formats="gptq",
        situation="a plain layer of a decoder block that `dynamic` (`-:`) or `modules_in_block_to_quantize` does not "
        "leave out",
        transformers=_INITIALIZES,
        vllm="takes plain layers from the headers where `modules_in_block_to_quantize` is empty",
        sglang=_INITIALIZES,
        llama_cpp="",
        source="gptq_marlin.py maybe_update_config; gptq_utils.py; quantizer_gptq.py",
    ),
    "plain: modelopt": Reading(
        formats="modelopt",
        situation="a plain layer that `ignore` or `exclude_modules` does not name: wildcards, or a part of the name",
        transformers="",
        vllm="expects codes and scales and leaves them empty",
        sglang="expects codes and scales and leaves them empty",
        llama_cpp="",
        source="vLLM modelopt.py is_layer_excluded",
    ),
    "plain: bitsandbytes": Reading(
        formats="bitsandbytes",
        situation="a plain layer that `llm_int8_skip_modules` does not name: transformers takes a name's start or end, "
        "vLLM and SGLang one part of it, or its first parts",
        transformers="takes its floats for codes, or refuses them",
        vllm="quantizes it anew",
        sglang="quantizes it anew",
        llama_cpp="",
        source="integrations/bitsandbytes.py replace_with_bnb_linear; vLLM and SGLang bitsandbytes.py "
        "is_layer_skipped_bnb",
    ),
    "plain: torchao": Reading(
        formats="torchao",
        situation="a plain layer that `modules_to_not_convert` or the config's own names do not leave out",
        transformers=_KEEPS,
        vllm="quantizes it anew",
        sglang="quantizes it anew",
        llama_cpp="",
        source="quantizer_torchao.py; vLLM torchao.py",
    ),
    "gptq: sym": Reading(
        formats="gptq",
        situation="`sym: true` beside zero points that are not the middle code",
        transformers="subtracts the zero points of the file, or the middle code, as its kernel does",
        vllm="takes the middle code and never reads the zero points",
        sglang="takes the middle code and never reads the zero points",
        llama_cpp="",
        source="vLLM gptq_marlin.py TYPE_MAP (uint4b8, uint8b128)",
    ),
    "gptq: g_idx": Reading(
        formats="gptq",
        situation="`desc_act: false` beside a `g_idx` that permutes the in_features",
        transformers="gathers the scales by g_idx",
        vllm="never reads g_idx and takes the scales in their order",
        sglang="never reads g_idx and takes the scales in their order",
        llama_cpp="",
        source="vLLM gptq_marlin.py has_g_idx=desc_act",
    ),
    "compressed-tensors: actorder": Reading(
        formats="compressed-tensors",
        situation="`actorder: group` and `weight_g_idx` without each other",
        transformers="refuses `actorder: group` since compressed-tensors 0.19, and never reads weight_g_idx",
        vllm="gathers the scales by weight_g_idx where the config says `actorder: group`, and else never reads it",
        sglang="gathers the scales by weight_g_idx where the config says `actorder: group`, and else never reads it",
        llama_cpp="",
        source="compressed-tensors 0.20.0 run; vLLM compressed_tensors_wNa16.py",
    ),
    "tied head": Reading(
        formats="all",
        situation="the config ties the output head to the embedding, and the file holds another head",
        transformers="uses the head of the file and does not tie it",
        vllm="drops the head of the file and uses the embedding",
        sglang="drops the head of the file and uses the embedding",
        llama_cpp="writes the head of the file into the GGUF for most architectures",
        source="transformers 5.23.0 run; vLLM and SGLang models/llama.py load_weights (skip_prefixes); "
        "convert_hf_to_gguf.py",
    ),
    "single file and index": Reading(
        formats="safetensors",
        situation="model.safetensors beside an index of other shards",
        transformers="loads model.safetensors",
        vllm="loads the shards of the index",
        sglang="loads the shards of the index",
        llama_cpp="converts model.safetensors and the shards together, by its glob model*.safetensors",
        source="transformers modeling_utils.py; vLLM and SGLang weight_utils.py filter_duplicate_safetensors_files",
    ),
    "tensor twice": Reading(
        formats="safetensors",
        situation="one tensor in two files of the index",
        transformers="takes it from the file that the index names",
        vllm="takes it from the file that it reads last",
        sglang="takes it from the file that it reads last",
        llama_cpp="refuses it",
        source="vLLM weight_utils.py safetensors_weights_iterator",
    ),
    "tensor unlisted": Reading(
        formats="safetensors",
        situation="a tensor in a shard that the index does not list",
        transformers="reads every tensor of the shards",
        vllm="reads every tensor of the shards",
        sglang="reads every tensor of the shards",
        llama_cpp="refuses the folder, as its list and its tensors differ",
        source="transformers 5.23.0 run; vLLM weight_utils.py; convert_hf_to_gguf.py",
    ),
    "index alone": Reading(
        formats="safetensors",
        situation="model.safetensors beside an index whose files do not hold all of the model",
        transformers="loads model.safetensors",
        vllm="loads files of the index alone",
        sglang="loads files of the index alone",
        llama_cpp="refuses the folder, as its list and its tensors differ",
        source="vLLM and SGLang weight_utils.py filter_duplicate_safetensors_files",
    ),
    "adapter": Reading(
        formats="all",
        situation="adapter_config.json in the model's folder",
        transformers="loads, where PEFT is installed, the base model that adapter_config.json names, and its adapter",
        vllm="loads config.json's model, and adapter_model.safetensors among its weights where no index stands",
        sglang="loads config.json's model, and adapter_model.safetensors among its weights where no index stands",
        llama_cpp="converts the model alone",
        source="transformers auto_factory.py find_adapter_config_file; vLLM default_loader.py",
    ),
    "files beside": Reading(
        formats="all",
        situation="other weights beside the model's: pickles, GGUF files, original/, params.json",
        transformers="reads none of them",
        vllm="reads params.json with consolidated*.safetensors, where both are there, instead of config.json",
        sglang="reads none of them",
        llama_cpp="serves a GGUF file that it is given by name",
        source="vLLM transformers_utils/config.py get_config",
    ),
    "another file": Reading(
        formats="safetensors",
        situation="a further *.safetensors without an index",
        transformers="loads model.safetensors alone",
        vllm="loads every *.safetensors of the folder",
        sglang="loads every *.safetensors of the folder",
        llama_cpp="converts every model*.safetensors",
        source="vLLM and SGLang default loader, allow_patterns",
    ),
    "consolidated": Reading(
        formats="safetensors",
        situation="consolidated*.safetensors beside the model's files",
        transformers="never reads it",
        vllm="reads it alone, in Mistral's format, unless `--load-format` says otherwise",
        sglang="leaves it out where an index stands beside it",
        llama_cpp="never reads it",
        source="vLLM model_loader/default_loader.py _prepare_weights",
    ),
    "two configs": Reading(
        formats="gptq, awq, modelopt",
        situation="config.json and the file of the quantizer say different things",
        transformers="reads config.json",
        vllm="reads config.json",
        sglang="reads config.json",
        llama_cpp="reads config.json",
        source="GPTQModel reads quantize_config.json first (QUANT_CONFIG_FILENAME_COMPAT); vLLM get_quant_config",
    ),
    "nested config": Reading(
        formats="all",
        situation="quantization_config under text_config",
        transformers="looks for it at the top of config.json alone",
        vllm="looks under text_config as well",
        sglang="looks under text_config as well",
        llama_cpp="looks for it at the top of config.json alone",
        source="vLLM weight_utils.py get_quant_config; transformers modeling_utils.py",
    ),
}
