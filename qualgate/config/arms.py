"""The arms of a gate file: the baseline, variants with their recipes, and the roles of a four-arm comparison."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, model_validator

from qualgate.config.paths import AdapterPath, ModelPath
from qualgate.config.recipes import Recipe
from qualgate.config.served import IN_PROCESS, SERVED, ServedKeys
from qualgate.config.speculation import SpeculationEntry
from qualgate.documents import ABSENT, Written, quote, stated
from qualgate.errors import UsageError
from qualgate.evalsets.calibration_sets import located
from qualgate.records.arms import Arithmetic, Kept, ReadAs

DTYPES = {  # our name → other names
    "bfloat16": ("bf16",),
    "float16": ("fp16", "f16", "half"),
    "float32": ("fp32", "f32", "float", "single", "float64", "fp64", "f64", "double"),
}
KEPT = {  # likewise, of keys and values
    "float32": ("fp32", "f32"),
    "bf16": ("bfloat16",),
    "fp8": ("fp8_e4m3", "e4m3", "float8"),
    "int8": ("int8_per_token_head", "q8_0"),
    "int4": ("int4_per_token_head", "q4_0"),
}
VARIANT_NAME = "^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"


def _calibration_set(ref: Any, info: ValidationInfo) -> Any:
    """Return the file of the set's cases and their sha256; "" for the hash where a stored run is decided again without
    the file. Without a context (for the schema), return the name as it is."""
    if not isinstance(ref, str) or not ref:
        raise stated(f"`calibration` is the name or path of a calibration set, not {quote(ref)}")
    if info.context is None:
        return ref
    try:
        return located(ref, info.context["folder"])
    except UsageError as error:
        if info.context["files"]:
            raise stated(str(error)) from None
        return ref, ""


def _dtype(name: Any) -> Any:
    spelling = name.casefold().removeprefix("torch.") if isinstance(name, str) else name
    meant = next((right for right, others in DTYPES.items() if spelling in (right, *others)), name)
    if meant != name:
        raise stated(f"unknown dtype {quote(name)}; did you mean {meant!r}?")
    return name


def _kv_cache(name: Any) -> Any:
    spelling = name.casefold() if isinstance(name, str) else name
    meant = next((right for right, others in KEPT.items() if spelling in (right, *others)), name)
    if meant != name:
        raise stated(f"unknown kv_cache {quote(name)}; did you mean {meant!r}?")
    return name


def _arithmetic(name: Any) -> Any:
    """Suggest the right word for a dtype written as `arithmetic`; anything else is returned unchanged."""
    spelling = name.casefold().removeprefix("torch.") if isinstance(name, str) else name
    if spelling in ("fp32", "f32", "exact"):
        raise stated(f"unknown arithmetic {quote(name)}; did you mean 'float32'?")
    if spelling in ("bfloat16", "float16", "bf16", "fp16", "half", "auto", "serve", "server"):
        raise stated(
            f"unknown arithmetic {quote(name)}; did you mean 'served'? It rounds to the dtype of each arm, which is "
            "set by `dtype` beside its model"
        )
    return name


ArithmeticAs = Annotated[Arithmetic, BeforeValidator(_arithmetic)]
KeptAs = Annotated[Kept, BeforeValidator(_kv_cache)]
Dtype = Annotated[Literal["bfloat16", "float16", "float32"], BeforeValidator(_dtype)]


def _variant_name(name: str) -> str:
    if name.casefold() == "baseline":
        raise stated("a variant cannot be called baseline: that is the arm it is compared with; choose another name")
    if not re.fullmatch(VARIANT_NAME, name):
        raise stated(f"variant name {quote(name)}: at most 64 letters, digits and . _ + -, the first a letter or digit")
    return name


VariantName = Annotated[str, AfterValidator(_variant_name)]
_OF_A_FOLDER = ("read_as", "allow_config", "another_model")  # keys that go with a variant's own `model`
Names = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)]


class AdapterEntry(Written):
    """A LoRA adapter as PEFT saves it, over an arm's weights; a folder alone stands for `{path: FOLDER}`."""

    example: ClassVar = "{path: ./support-lora}"
    path: AdapterPath
    """The folder with adapter_config.json and adapter_model.safetensors, relative to the gate file. Example: `path:
    ./support-lora`
    """
    merge: bool = False
    """`true` adds it to the weights at load, as PEFT's `merge_and_unload` does; else it is kept apart of them, as by
    servers, and as quantized weights need it. Example: `merge: true`
    """


def _as_entry(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


def _or_a_folder(schema: dict[str, Any]) -> None:
    mapping = {"$ref": schema.pop("$ref")}
    schema["anyOf"] = [{"type": "string", "minLength": 1, "not": {"pattern": "://"}}, mapping]


# To the schema.
_MERGED: dict[str, Any] = {"type": "object", "required": ["merge"], "properties": {"merge": {"const": True}}}
AdapterOf = Annotated[AdapterEntry, BeforeValidator(_as_entry)]


class Baseline(ServedKeys):
    """What variants are held against: a model folder, at full precision unless `quantized` says otherwise, or what a
    server serves."""

    model_config = {"json_schema_extra": {"required": [], "anyOf": [{"required": ["model"], **IN_PROCESS}, *SERVED]}}
    example: ClassVar = "{model: ./models/support}"
    model: ModelPath
    """The full-precision model: a folder with config.json, safetensors and tokenizer, relative to the gate file, or
    `reference`, the small model that ships with qualgate. Of what is served, the name that its server lists. Example:
    `model: ./models/support`
    """
    dtype: Dtype = "bfloat16"
    """What the weights are rounded to, and what a server stores with `arithmetic: served`. Activations beyond float16
    are counted, and never approve. Example: `dtype: float16`"""
    kv_cache: KeptAs = "float32"
    """How keys and values are held: `float32`, `bf16`, `fp8`, `int8` or `int4`; prompts see them so, too. Variants
    without a `kv_cache` of their own have this one. Left out: as the folder declares it, else `float32`. Example:
    `kv_cache: bf16`
    """
    adapter: AdapterOf = Field(default=ABSENT, json_schema_extra=_or_a_folder)
    """A LoRA adapter over it: a folder that PEFT saved, or a mapping with `merge`. Variants without a `model` of their
    own have it too, kept apart where they are quantized. Example: `adapter: ./support-lora`
    """
    read_as: ReadAs = ABSENT
    """The server whose reading of the folder is judged, where servers read it differently: `transformers`, `vllm`,
    `sglang` or `llama.cpp`. Left out, such a folder is refused. Variants without a `read_as` of their own have this
    one. Example: `read_as: vllm`
    """
    allow_config: Names = ABSENT
    """Keys of a quantized baseline's configs that qualgate does not know. Example: `allow_config: [maker_notes]`"""
    quantized: bool = False
    """`true` says that you mean to hold variants against a quantized checkpoint; without it such a baseline is
    refused. Example: `quantized: true`
    """
    models: Names = ABSENT
    """Of score files: what rows may call the baseline in `model`, where that is several names. Example: `models:
    [support, support-0902]`
    """

    @model_validator(mode="before")
    @classmethod
    def _says_every_token_itself(cls, value: Any) -> Any:
        if isinstance(value, dict) and "speculation" in value:
            raise stated(
                "the baseline cannot use `speculation`: variants are compared with plain decoding. Make it a variant: "
                "variants: {drafted: {speculation: {draft: ngram}}}"
            )
        return value


class Variant(ServedKeys):
    """A model folder of its own, a way to make the weights from the baseline's, the baseline's own weights that
    speculate, or what a server serves."""

    example: ClassVar = "{quantize: int8}"
    arm: Literal["quantization", "speculation", "both"] = ABSENT
    """Its role in a comparison of four arms. One that is served and says `speculation` or `both` is not approved, among
    four or by itself, where nothing shows that its server drafted. Example: `arm: quantization`"""
    model_config = {
        "json_schema_extra": {
            "anyOf": [IN_PROCESS, *SERVED],
            "oneOf": [
                {"required": ["model"], "properties": {"quantize": False}},
                {
                    "required": ["quantize"],
                    "properties": {
                        **dict.fromkeys(("model", "dtype", "calibration", *_OF_A_FOLDER), False),
                        "adapter": {"not": _MERGED},
                    },
                },
                {"required": ["serve"], "properties": dict.fromkeys(("model", "quantize"), False)},
                {
                    "anyOf": [{"required": [key]} for key in ("speculation", "kv_cache", "adapter")],
                    "properties": dict.fromkeys(("model", "quantize", "dtype", "calibration", *_OF_A_FOLDER), False),
                },
            ],
        }
    }
    model: ModelPath = ABSENT
    """A folder of its own, quantized or not; its format is recognised. Of what is served, the name that its server
    lists. Example: `model: ./models/support-awq`"""
    dtype: Dtype = ABSENT
    """What the weights that are not quantized are rounded to; the baseline's where it is left out. Example: `dtype:
    float16`
    """
    read_as: ReadAs = ABSENT
    """The server whose reading of the folder is judged, see the baseline's. Example: `read_as: llama.cpp`"""
    allow_config: Names = ABSENT
    """Keys of the folder's configs that may differ from the baseline's, or that qualgate does not know. The verdict
    tells them. Example: `allow_config: [rope_theta]`
    """
    another_model: bool = ABSENT
    """`true` says that the folder is another model on purpose (pruned, distilled): its architecture may differ from the
    baseline's, and the verdict says so first. Example: `another_model: true`
    """
    models: Names = ABSENT
    """Of score files: what rows may call the variant in `model`, where that is several names. Example: `models:
    [support-awq, support-awq-0902]`
    """
    quantize: Recipe = ABSENT
    """How the weights are made from the baseline's: a method's name, or a mapping with `method` and its options.
    Example: `quantize: {method: int4, group_size: 32}`
    """
    calibration: Annotated[
        Any, AfterValidator(_calibration_set), WithJsonSchema({"type": "string", "minLength": 1})
    ] = ABSENT
    """The set that a folder made elsewhere was calibrated with, by your word; rules on `coverage.*` are measured by
    it. Example: `calibration: ./ours/calibration.yaml`
    """
    speculation: SpeculationEntry = ABSENT
    """Who drafts for it, while this engine generates its answers. Beside neither `model` nor `quantize`, the weights
    are the baseline's own. Example: `speculation: {draft: {quantize: mxfp4}, tokens: 5}`
    """
    kv_cache: KeptAs = ABSENT
    """How its keys and values are held: `float32`, `bf16`, `fp8`, `int8` or `int4`; left out, as the baseline says,
    else as its folder declares. `fp8` uses the scales of the folder, if it has some. Alone, it is judged apart from
    the weights, which are the baseline's own. Example: `kv_cache: int8`
    """
    adapter: AdapterOf = Field(default=ABSENT, json_schema_extra=_or_a_folder)
    """A LoRA adapter over its weights: a folder that PEFT saved, or a mapping with `merge`; without a `model` the
    baseline's where it is left out. Alone, its weights are the baseline's own. Example: `adapter: ./support-lora`
    """

    @model_validator(mode="after")
    def _has_one_origin(self) -> Variant:
        """Check that a variant has one origin, and no key of another one."""
        if self.model is not None and self.quantize is not None:
            raise stated("a variant has either `model` (a folder) or `quantize` (made from the baseline), not both")
        alone = self.speculation, self.kv_cache, self.adapter
        if self.model is None and self.quantize is None and all(key is None for key in alone):
            raise stated(
                "a variant needs `model` (a folder) or `quantize` (made from the baseline); or, to keep the "
                "baseline's own weights, `speculation`, `kv_cache` or `adapter` alone"
            )
        if self.quantize is not None and self.adapter is not None and self.adapter.merge:
            raise stated(
                "an adapter cannot be merged into weights that `quantize` makes: leave `merge` out, or merge it with "
                "PEFT, save that model, and quantize it"
            )
        if self.model is None and self.dtype is not None:
            raise stated("`dtype` goes with `model`: the baseline's weights, quantized or not, keep its dtype")
        if self.model is None and (folder_keys := [key for key in _OF_A_FOLDER if getattr(self, key) is not None]):
            raise stated(f"`{folder_keys[0]}` goes with `model`: the baseline's own weights are read like the baseline")
        if self.model is None and self.calibration is not None:
            raise stated("`calibration` goes with `model`; in a recipe, write quantize: {calibration: …}")
        return self


class DraftingEntry(Written):
    """What an arm's server counted over all of its answers: declared, never measured here."""

    example: ClassVar = "{proposed: 120000, accepted: 84000}"
    proposed: int = Field(gt=0)
    """Tokens that its draft proposed. Example: `proposed: 120000`"""
    accepted: int = Field(ge=0)
    """Of those, tokens that it kept. Example: `accepted: 84000`"""

    @model_validator(mode="after")
    def _a_part(self) -> DraftingEntry:
        if self.accepted > self.proposed:
            raise stated(
                f"`accepted` is {self.accepted}, more than `proposed` ({self.proposed}): an arm accepts only proposed "
                "tokens"
            )
        return self


class FourArmEntry(Written):
    """Which variants the arms are (or each variant says it by `arm:`), and how they are compared."""

    example: ClassVar = "{quantization: int4, speculation: drafted, both: int4+drafted}"
    quantization: str = ABSENT
    """The variant that is quantized alone. Example: `quantization: int4`"""
    speculation: str = ABSENT
    """The variant that speculates alone. Example: `speculation: drafted`"""
    both: str = ABSENT
    """The variant that does both. Example: `both: int4+drafted`"""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the order of blocks. Example: `seed: 5`"""
    parity: Literal["identical", "sampled", "lossy"] = "identical"
    """What speculation promises of its target's answers: `identical` tokens, answers `sampled` from the same
    distribution (compared by their scores), or neither (`lossy`: its quality is judged instead). Example: `parity:
    sampled`
    """
    min_saving: float = Field(default=0.05, ge=0, lt=1)
    """What an arm must surely save of the baseline's cost per accepted answer to be worth having, as a share. Example:
    `min_saving: 0.05`
    """
    memory_share: float = Field(default=ABSENT, ge=0, le=1)
    """Declared: the share of the serving device's memory that weights and KV cache fill. It goes before what is
    measured here, in the advice what to try first. Example: `memory_share: 0.9`
    """
    tool_share: float = Field(default=ABSENT, ge=0, le=1)
    """Declared: the share of a request's time that is spent in tools, for the same advice. Example: `tool_share: 0.3`
    """
    drafting: dict[str, DraftingEntry] = Field(default=ABSENT, min_length=1)
    """Declared: what a server drafted for an arm in all, where its score rows do not say it (`draft_proposed`,
    `draft_accepted`). Example: `drafting: {drafted: {proposed: 120000, accepted: 84000}}`
    """
