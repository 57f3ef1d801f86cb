"""Notes on what servers read differently in the model folders of all arms alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from qualgate.quant.agreement.rope import spelling_notes
from qualgate.quant.agreement.sampling_defaults import sampling_notes
from qualgate.quant.agreement.stop_tokens import by_server
from qualgate.quant.agreement.tokenizer_class import tokenizer_class_note
from qualgate.quant.agreement.weight_files import beside_note
from qualgate.quant.cache_scheme import cache_scales, declared_cache
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.shards import listed_files
from qualgate.quant.tokenizer_files import beside_difference_note


def folder_notes(arms: Sequence[tuple[str, ModelFolder]]) -> Iterator[str]:
    """Yield notes on what servers read differently in the folders of all arms alike, the baseline's first."""
    yield from sampling_notes([(name, folder.files) for name, folder in arms])
    yield from filter(None, (beside_note(name, folder.beside, listed_files(folder.shards)) for name, folder in arms))
    yield from filter(None, [beside_difference_note([(name, folder.files) for name, folder in arms])])
    yield from spelling_notes((name, folder.files) for name, folder in arms)
    for name, folder in arms:
        if (scales := cache_scales(folder.shards)) and not declared_cache(folder.files):
            yield (
                f"{name}: {folder.path} has scales of keys and values ({len(scales)} layers), and its config names no "
                "kv_cache_scheme: they are used where an arm says `kv_cache: fp8`, and by servers started so"
            )
        where = folder.format.where if folder.format and folder.format.method != "gguf" else None
        if where is not None and where.name not in ("config.json", "hf_quant_config.json"):
            yield (
                f"{name}: {where} alone says how its weights are quantized: transformers and vLLM look for that in "
                "config.json and take the weights for plain ones. Put it there as quantization_config"
            )
    yield from filter(None, (tokenizer_class_note(name, folder.files) for name, folder in arms))
    if not arms:
        return
    _, baseline = arms[0]
    stops = dict(baseline.stops_by_server)
    if not any(folder.header for _, folder in arms):
        del stops["llama.cpp"]
    if baseline.read_as is None and len(set(stops.values())) > 1:
        yield (
            f"servers end answers at different tokens, alike for all arms ({by_server(stops)}): here they end at "
            f"{' and '.join(map(str, baseline.stop_ids))}; `read_as` for both arms picks one server's"
        )
