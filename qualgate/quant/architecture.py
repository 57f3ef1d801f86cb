"""Whether a folder's config says a model that writes text token by token from text alone. What does not is named."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from qualgate.errors import NotInThisVersion, UsageError, close_names
from qualgate.errors.extras import pip_install
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.shards import Shards

# Model types that read whole texts or go through an encoder, as transformers calls them.
ENCODERS = (
    "albert", "bert", "big_bird", "camembert", "canine", "convbert", "data2vec-text", "deberta", "deberta-v2",
    "distilbert", "electra", "ernie", "esm", "eurobert", "fnet", "funnel", "ibert", "layoutlm",
    "layoutlmv2", "layoutlmv3", "longformer", "luke", "megatron-bert", "mobilebert", "modernbert", "mpnet", "mra",
    "nezha", "nomic_bert", "nystromformer", "rembert", "roberta", "roberta-prelayernorm", "roc_bert", "roformer",
    "splinter", "squeezebert", "xlm-roberta", "xlm-roberta-xl", "xmod", "yoso",
)  # fmt: skip
ENCODER_DECODERS = (
    "bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "encoder-decoder", "fsmt", "led", "longt5", "m2m_100",
    "marian", "mbart", "mt5", "mvp", "nllb-moe", "pegasus", "pegasus_x", "plbart", "prophetnet", "switch_transformers",
    "t5", "t5gemma", "udop", "umt5", "whisper",
)  # fmt: skip
# Ends of the names of classes that judge or fill in texts and write none.
_JUDGES = (
    "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice", "ForMaskedLM",
    "ForPreTraining", "ForNextSentencePrediction", "ForImageClassification", "ForTextEncoding", "RewardModel",
)  # fmt: skip
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
_SENSES = {"vision_config": "pictures", "audio_config": "sound", "speech_config": "sound", "video_config": "videos"}


def check_writes_text(files: ModelFiles) -> None:
    """Raise UsageError for a config of an encoder, of an encoder-decoder, of a classifier, of a type that transformers
    does not know, and NotInThisVersion for one of a model of pictures or sound whose language part transformers does
    not load by itself."""
    where, config = files.path / "config.json", files.config
    kind, named = str(config.get("model_type")), config.get("architectures")
    classes = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    model = f"model_type {kind!r:.60}" + (f", {classes[0]:.80}" if classes else "")
    decodes = config.get("is_decoder") is True and not config.get("add_cross_attention")
    writes = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in classes)
    if config.get("is_encoder_decoder") is True or (kind in ENCODER_DECODERS and not (decodes or writes)):
        raise UsageError(
            f"{where}: {model}, is an encoder-decoder, whose answers do not continue the prompt; qualgate judges "
            "decoders. Give a causal language model, or judge answers from a server of this one: qualgate gate "
            "GATE.yaml --baseline-scores A.jsonl --variant-scores B.jsonl"
        )
    judges = next((name for name in classes if name.endswith(_JUDGES)), "")
    if (kind in ENCODERS and not decodes) or (judges and not writes):
        text = "an encoder" if kind in ENCODERS else "a model with a head that writes no text"
        raise UsageError(
            f"{where}: {model}, is {text}, but qualgate judges what models write. Give the folder of a causal language "
            "model (…ForCausalLM)"
        )
    senses = next((sense for key, sense in _SENSES.items() if config.get(key) is not None), "")
    if senses and not _loads_as_text(kind):
        raise NotInThisVersion(
            f"{where}: {model}, reads {senses} beside text, which is not in this version. Give a text model of its "
            "family, or the folder of its language part alone (…ForCausalLM), with its tokenizer"
        )
    if kind != "llama":  # whose tokenizer is made without transformers' list of types, which takes seconds to import
        _check_known(where, kind)


def check_width(files: ModelFiles, shards: Shards) -> None:
    """Raise UsageError where the weights are of another width than the config's `hidden_size`.

    Only where embedding and last norm agree against it: an embedding alone may be narrower than what follows.
    """
    width = (files.config.get("text_config") or files.config).get("hidden_size")
    entries = [shards.entries.get(f"model.{name}.weight") for name in ("embed_tokens", "norm")]
    widths = {entry.shape[-1] for entry in entries if entry is not None and entry.shape}
    if type(width) is int and None not in entries and len(widths) == 1 and widths != {width}:
        raise UsageError(
            f"{files.path / 'config.json'}: hidden_size is {width}, but the weights are {widths.pop()} wide (embedding "
            "and last norm): config and weights belong to different models. Fetch or save this folder again."
        )


def check_depth(files: ModelFiles, shards: Shards) -> None:
    """Raise UsageError where the weights are of fewer or more layers than the config's `num_hidden_layers`.

    A layer behind the last that has tensors of other names predicts more tokens at once and is no contradiction.
    """
    depth = (files.config.get("text_config") or files.config).get("num_hidden_layers")
    if type(depth) is not int:
        return
    layers = dict[int, set[str]]()
    for layer, name in (match.groups() for match in map(_LAYER.fullmatch, shards.entries) if match):
        layers.setdefault(int(layer), set()).add(name)
    counted = [layer for layer in layers if layer < depth]
    if not counted:  # its layers have other names
        return
    ordinary = set[str]().union(*(layers[layer] for layer in counted))
    if len(counted) < depth or any(layers[layer] <= ordinary for layer in layers if layer >= depth):
        raise UsageError(
            f"{files.path / 'config.json'}: num_hidden_layers is {depth}, but the weights have {len(layers)} layers "
            f"(the last is model.layers.{max(layers)}): config and weights belong to different models. Fetch or save "
            "this folder again."
        )


def _check_known(where: Path, kind: str) -> None:
    """Raise UsageError for a model_type that transformers does not know, with a hint."""
    from transformers import CONFIG_MAPPING

    if kind not in CONFIG_MAPPING:
        hint = next((f"; did you mean {name!r}?" for name in close_names(kind, sorted(CONFIG_MAPPING.keys()))), "")
        raise UsageError(
            f"{where}: transformers {version('transformers')} does not know the model_type {kind!r:.60}{hint or '.'} "
            "Give a model that it loads, or a newer transformers that loads this one: "
            f"{pip_install('--upgrade', 'transformers')}"
        )


def _loads_as_text(kind: str) -> bool:
    """Return whether transformers makes a causal language model of such a folder. Needs torch, which it imports
    itself."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
