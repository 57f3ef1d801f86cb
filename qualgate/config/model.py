"""What a gate file may hold: the types behind the loader and the editor's JSON Schema alike.

Validators find the gate file's folder in the validation context under "folder"; without one they look for no file.
"""

from __future__ import annotations

import os
import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from qualgate import evalsets
from qualgate.documents import ABSENT, Written, nearest, planned, quote, stated
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.metrics import DROP_BELOW, DROP_TOO_LARGE, METRICS, PLANNED
from qualgate.quant.recipes import (
    BITS,
    BLOCKS,
    CALIBRATED,
    CHOICES,
    CLASSES,
    DATA_FREE,
    FLOATS,
    OPTIONS,
    parse_recipe,
)
from qualgate.quantize.calibration_sets import located, with_calibration
from qualgate.records import TEMPERATURES, LmEvalTask, QuantizeRecipe

Dtype = Literal["bfloat16", "float16", "float32"]
BOUNDS = ("max_drop", "max_relative_drop", "max", "min", "max_ratio")
VARIANT_NAME = "^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$"
SHIPPED_MODEL = "reference"
COLDEST, HOTTEST = TEMPERATURES
MOST_REPEATS = 1_000  # answers to a case
LONGEST_PATH = 4096  # bytes; Linux takes no more


def expanded(path: str) -> Path:
    """`path` with `~` and `~name` as folders. A fault for what no file system could mean by it."""
    if "\0" in path or len(path.encode("utf-8", "replace")) > LONGEST_PATH:
        raise stated(f"{quote(path)} cannot be a path: it holds a NUL character or more than {LONGEST_PATH} bytes")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise stated(f"{quote(path)}: no such user's home folder is known; write the folder out") from None


def _model_folder(model: str, info: ValidationInfo) -> str:
    if not model:
        raise stated(f"`model` is empty; write a folder, or `{SHIPPED_MODEL}` for the shipped one")
    if "://" in model:
        raise planned(f"a model at an address ({quote(model)})")
    if info.context is None or model == SHIPPED_MODEL:
        return model
    folder: Path = info.context["folder"] / expanded(model)
    there = os.path.isdir(folder)  # Path.is_dir raises for a name that is too long or may not be looked at
    if "/" not in model and not there:
        raise stated(
            f"no model called {quote(model)}; the shipped one is `{SHIPPED_MODEL}`, a folder is written ./{model}"
        )
    if info.context["files"] and not there:
        raise stated(f"no model folder {quote(str(folder), 200)}")
    return model


def _recipe(value: Any, info: ValidationInfo) -> QuantizeRecipe:
    try:
        recipe = parse_recipe(value)
        if info.context is None or not recipe.calibration:
            return recipe
        try:
            return with_calibration(recipe, info.context["folder"])
        except UsageError:
            if info.context["files"]:
                raise
            return recipe  # a stored run is decided again without the data that made its variants
    except NotInThisVersion as error:
        raise planned(str(error).removesuffix(".").partition(" is not in this version")[0]) from None
    except UsageError as error:
        raise stated(str(error)) from None


def _calibration_set(ref: Any, info: ValidationInfo) -> Any:
    """Its cases' file and their sha256, "" where a stored run is decided again without it."""
    if not isinstance(ref, str) or not ref:
        raise stated(f"`calibration` names a calibration set, not {quote(ref)}")
    if info.context is None:
        return ref
    try:
        return located(ref, info.context["folder"])
    except UsageError as error:
        if info.context["files"]:
            raise stated(str(error)) from None
        return ref, ""


def _recipe_schema(method: str) -> dict[str, Any]:
    """What `parse_recipe` takes for one method, as far as a schema can say it."""
    data_free, floats = {"enum": [*FLOATS, *DATA_FREE]}, {"enum": list(FLOATS)}
    size: dict[str, Any] = {"type": "integer", "minimum": 0, "multipleOf": 8}
    if method in BLOCKS or method in ("fp8", "smoothquant"):
        size = {"const": BLOCKS.get(method, 0)}
    known: dict[str, Any] = {
        "bits": {"enum": list(CHOICES.get(method, (BITS[method],)))},
        "group_size": size,
        "granularity": {"enum": ["tensor", "block"] if method == "fp8" else ["tensor"]},
        "activations": {"enum": ["int8" if method == "smoothquant" else method]},
        "calibration": {"type": "string", "minLength": 1},
        "keep": {
            "type": "object",
            "properties": dict.fromkeys(CLASSES["lm_head"], floats),
            "propertyNames": {"minLength": 1},
            "additionalProperties": data_free,
        },
    }
    properties: dict[str, Any] = {"method": {"const": method}}
    for key, option in OPTIONS.items():
        if method in option.methods:
            properties[key] = known.get(key, {"enum": list(option.values)}) | {"description": option.meaning}
    return {
        "type": "object",
        "properties": properties,
        "required": ["method", "calibration"] if method in CALIBRATED else ["method"],
        "dependencies": {"granularity": {"properties": {"group_size": {"const": 0}}}},
        "additionalProperties": False,
    }


LM_EVAL_KEYS: dict[str, tuple[type, str]] = {
    "lm_eval": (str, "The task's or the group's name. Example: `lm_eval: gsm8k`"),
    "include_path": (
        str,
        "The folder of tasks of your own, relative to the gate file. Example: `include_path: ./tasks`",
    ),
    "filter": (str, "The filter of lm-eval's that counts. Example: `filter: strict-match`"),
    "metric": (str, "The task's metric that is judged, as `lm_eval.score`. Example: `metric: bleu`"),
    "num_fewshot": (
        int,
        "Examples before each question; the task's own number where it is left out. Example: `num_fewshot: 5`",
    ),
    "limit": (int, "Only so many documents of each task. Example: `limit: 200`"),
}
LM_EVAL_SCHEMA = {
    "type": "object",
    "properties": {
        name: (
            {"type": "string", "minLength": 1} if kind is str else {"type": "integer", "minimum": int(name == "limit")}
        )
        | {"description": meaning}
        for name, (kind, meaning) in LM_EVAL_KEYS.items()
    },
    "required": ["lm_eval"],
    "additionalProperties": False,
}


def _lm_eval_task(ref: dict[Any, Any], info: ValidationInfo) -> LmEvalTask:
    for key, value in ref.items():
        if key not in LM_EVAL_KEYS:
            raise stated(f"unknown key {quote(key)} beside `lm_eval`{nearest(str(key), LM_EVAL_KEYS)}")
        kind, _ = LM_EVAL_KEYS[key]
        if type(value) is not kind or value == "" or (kind is int and value < (key == "limit")):
            wanted = "a text" if kind is str else f"a whole number from {int(key == 'limit')}"
            raise stated(f"`{key}` must be {wanted}, found {quote(value)}")
    if not re.fullmatch(evalsets.NAME, ref["lm_eval"]):
        raise stated(
            f"{quote(ref['lm_eval'])} cannot be the name of a task of lm-eval's; for one of your own write what its "
            "file says after `task:`, and the file's folder as `include_path`"
        )
    folder = expanded(ref.get("include_path", ""))
    if "include_path" in ref and info.context is not None:
        folder = info.context["folder"] / folder
        if info.context["files"] and not os.path.isdir(folder):
            raise stated(f"no folder {quote(str(folder), 200)} with tasks of lm-eval's")
    return LmEvalTask(
        task=ref["lm_eval"],
        include_path=os.path.normpath(folder) if "include_path" in ref else "",
        filter=ref.get("filter", ""),
        metric=ref.get("metric", ""),
        num_fewshot=ref.get("num_fewshot"),
        limit=ref.get("limit"),
    )


def _evalset_ref(ref: Any, info: ValidationInfo) -> Any:
    if isinstance(ref, dict) and "lm_eval" in ref:
        return _lm_eval_task(ref, info)
    if not isinstance(ref, str) or not ref:
        raise stated(f"an evalset is a shipped set's name or a path, not {quote(ref)}")
    if not evalsets.is_path(ref) and ref not in evalsets.shipped():
        raise stated(
            f"no shipped evalset {quote(ref)}{nearest(ref, evalsets.shipped())}; a file is written ./{ref}.yaml"
        )
    if (
        info.context
        and info.context["files"]
        and evalsets.is_path(ref)
        and not os.path.isfile(info.context["folder"] / ref)
    ):
        raise stated(f"no evalset at {quote(str(info.context['folder'] / ref), 200)}")
    return ref


def _metric(name: str) -> str:
    if name in PLANNED:
        raise planned(f"the metric {name!r}")
    if name not in METRICS:
        raise stated(f"unknown metric {quote(name)}{nearest(name, METRICS)}")
    return name


def _environment_name(name: str) -> str:
    if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,63}", name):
        raise stated("`api_key_env` must be the NAME of an environment variable; a key itself must not stand in a file")
    return name


def _store_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    if scheme.startswith("postgres"):
        raise planned("a PostgreSQL store")  # the address is not repeated: it may hold a password
    if scheme != "sqlite" or not rest.startswith("/") or rest.endswith("/"):
        raise stated("the store must be sqlite:///FILE (relative to the gate file) or sqlite:////FOLDER/FILE")
    if "?" in rest or ":memory:" in rest:
        raise stated("the store must be a plain file: a verdict has to outlive its run")
    expanded(rest[1:])
    return url


def _count(count: Any) -> Any:
    if count != "auto" and (type(count) is not int or not 1 <= count <= 256):
        raise stated(f"`workers.count` is a whole number from 1 to 256, or auto; found {quote(count)}")
    return count


def _variant_name(name: str) -> str:
    if name.casefold() == "baseline":
        raise stated("a variant cannot be called baseline; that is what it is held against")
    if not re.fullmatch(VARIANT_NAME, name):
        raise stated(f"variant name {quote(name)}: at most 64 letters, digits and . _ + -, the first a letter or digit")
    return name


NOT_AN_ADDRESS = Field(json_schema_extra={"minLength": 1, "not": {"pattern": "://"}})


class Baseline(Written):
    later: ClassVar = ("endpoint", "api_key_env", "kv_cache", "speculation")
    example: ClassVar = "{model: ./models/support}"
    model: Annotated[str, AfterValidator(_model_folder), NOT_AN_ADDRESS]
    """The full-precision model: a folder with config.json, safetensors and tokenizer, relative to the gate file, or
    `reference`, the small model that ships with qualgate. Example: `model: ./models/support`
    """
    dtype: Dtype = "bfloat16"
    """What the weights are rounded to. Arithmetic is float32, whatever this says. Example: `dtype: float16`"""
    quantized: bool = False
    """`true` says that you mean to hold variants against a quantized checkpoint; without it such a baseline is
    refused. Example: `quantized: true`
    """


class Variant(Written):
    """A model folder of its own, or a way to make the weights from the baseline's."""

    later: ClassVar = ("kv_cache", "speculation", "endpoint", "api_key_env")
    example: ClassVar = "{quantize: int8}"
    arm: Literal["quantization", "speculation", "both"] = ABSENT
    """Its role in a comparison of four arms. Example: `arm: quantization`"""
    model_config = {
        "json_schema_extra": {
            "oneOf": [
                {"required": ["model"], "properties": {"quantize": False}},
                {"required": ["quantize"], "properties": {"model": False, "dtype": False, "calibration": False}},
            ]
        }
    }
    model: Annotated[str, AfterValidator(_model_folder), NOT_AN_ADDRESS] = ABSENT
    """A folder of its own, quantized or not; its format is recognised. Example: `model: ./models/support-awq`"""
    dtype: Dtype = ABSENT
    """What the weights that are not quantized are rounded to; the baseline's where it is left out. Example: `dtype:
    float16`
    """
    quantize: Annotated[
        Any,
        AfterValidator(_recipe),
        WithJsonSchema({"oneOf": [{"enum": list(DATA_FREE)}, *map(_recipe_schema, BITS)]}),
    ] = ABSENT
    """How the weights are made from the baseline's: a method's name, or a mapping with `method` and its options.
    Example: `quantize: {method: int4, group_size: 32}`
    """
    calibration: Annotated[
        Any, AfterValidator(_calibration_set), WithJsonSchema({"type": "string", "minLength": 1})
    ] = ABSENT
    """The set that a folder made elsewhere was calibrated with, by your word; rules on `coverage.*` are measured by
    it. Example: `calibration: ./ours/calibration.yaml`
    """

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_built(cls, value: Any) -> Any:
        if isinstance(value, dict):
            if isinstance(value.get("api_key_env"), str):
                _environment_name(value["api_key_env"])
            if later := [key for key in value if key in cls.later]:
                # Such a variant is refused whole: its other keys mean something else there.
                raise planned(f"a variant with `{'`, `'.join(later)}`")
        return value

    @model_validator(mode="after")
    def _has_one_origin(self) -> Variant:
        if (self.model is None) == (self.quantize is None):
            raise stated("a variant has `model` (a folder) or `quantize` (made from the baseline), one of the two")
        if self.quantize is not None and self.dtype is not None:
            raise stated("`dtype` does not go with `quantize`: what is not quantized keeps the baseline's")
        if self.quantize is not None and self.calibration is not None:
            raise stated("`calibration` goes with `model`; a recipe names its own: quantize: {calibration: …}")
        return self


class Generation(Written):
    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["repeats"], "properties": {"repeats": {"minimum": 2}}},
            "then": {"required": ["temperature"], "properties": {"temperature": {"exclusiveMinimum": 0}}},
        }
    )
    later: ClassVar = ("top_p", "top_k", "min_p")
    example: ClassVar = "{temperature: 0}"
    temperature: Annotated[
        float, Field(json_schema_extra={"anyOf": [{"const": 0}, {"minimum": COLDEST, "maximum": HOTTEST}]})
    ] = 0.0
    """0 takes the likeliest token; above it, tokens are drawn. Evalsets of lm-eval that say their own keep it.
    Example: `temperature: 0.7`
    """
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of every draw: sampled tokens, the order of cases with `stop: early`. Example: `seed: 5`"""
    repeats: Annotated[int, Field(json_schema_extra={"minimum": 1, "maximum": MOST_REPEATS})] = 1
    """Answers to each case; more than one needs a temperature. Example: `repeats: 4`"""

    @field_validator("temperature")
    @classmethod
    def _in_range(cls, value: float) -> float:
        if value < 0:
            raise stated("`generation.temperature` must not be negative")
        if value and not COLDEST <= value <= HOTTEST:
            raise stated(f"`generation.temperature` is 0 (the likeliest token) or from {COLDEST:g} to {HOTTEST:g}")
        return value

    @field_validator("repeats")
    @classmethod
    def _counted(cls, value: int) -> int:
        if not 1 <= value <= MOST_REPEATS:
            raise stated(f"`generation.repeats` is a whole number from 1 to {MOST_REPEATS:,}")
        return value

    @model_validator(mode="after")
    def _repeats_differ(self) -> Generation:
        if self.repeats > 1 and not self.temperature:
            raise stated(
                f"`generation.repeats` is {self.repeats} at temperature 0, where all answers to a case are equal; add "
                "a temperature such as 0.7, or leave `repeats` out"
            )
        return self


def _per(value: str) -> str:
    if not re.fullmatch(PER, value):
        raise stated(f"`per` is 'evalset', 'task' or 'tag:NAME', not {quote(value)}")
    return value


PER = "evalset|task|tag:.{1,100}"


class Where(Written):
    """Only the cases with this tag, or of this task."""

    model_config = {"json_schema_extra": {"minProperties": 1, "maxProperties": 1}}
    example: ClassVar = "{tag: NAME}"
    tag: str = Field(default=ABSENT, min_length=1)
    """Only the cases that carry this tag. Example: `tag: german`"""
    task: str = Field(default=ABSENT, min_length=1)
    """Only the cases of this task. Example: `task: extract`"""

    @model_validator(mode="after")
    def _is_one(self) -> Where:
        if (self.tag is None) == (self.task is None):
            raise stated("`where` has one of `tag` and `task`")
        return self


class RuleEntry(Written):
    example: ClassVar = "{metric: exact_match, max_drop: 0.02}"
    metric: Annotated[str, AfterValidator(_metric), Field(json_schema_extra={"enum": list(METRICS)})]
    """What the rule is about, from the closed list of metrics. Example: `metric: exact_match`"""
    per: Annotated[str, AfterValidator(_per), Field(json_schema_extra={"pattern": f"^({PER})$"})] = ABSENT
    """One comparison for each evalset, each task, or each value of a tag `NAME:VALUE`; left out, all are pooled.
    Example: `per: evalset`
    """
    evalset: str = ABSENT
    """Only the cases of this evalset. Example: `evalset: tool_calls`"""
    tier: Literal["critical", "supporting", "advisory"] = "critical"
    """Critical rules approve and block, a broken supporting rule asks for a person, an advisory one is only shown.
    Example: `tier: advisory`
    """
    max_drop: float = Field(default=ABSENT, gt=0, json_schema_extra={"exclusiveMaximum": DROP_BELOW})
    """The largest loss allowed, as a share: 0.02 is two points. Example: `max_drop: 0.02`"""
    max_relative_drop: float = Field(default=ABSENT, gt=0, json_schema_extra={"exclusiveMaximum": DROP_BELOW})
    """The largest loss allowed, as a share of the baseline's own rate. Example: `max_relative_drop: 0.03`"""
    max: float = Field(default=ABSENT, gt=0)
    """The largest value of the variant allowed, in the metric's unit. Example: `max: 0.05`"""
    min: float = Field(default=ABSENT, gt=0)
    """The smallest value of the variant allowed, in the metric's unit. Example: `min: 0.98`"""
    max_ratio: float = Field(default=ABSENT, gt=0)
    """The largest ratio allowed of the variant to the baseline. Example: `max_ratio: 1.10`"""
    percentile: float = Field(default=ABSENT, gt=0, lt=100)
    """Of a latency: compare this percentile; left out, the ratio of total seconds. Example: `percentile: 95`"""
    where: Where = ABSENT
    """Only the cases with a tag, or of a task. Example: `where: {tag: german}`"""
    repeats: Literal["mean", "any", "all"] = "mean"
    """What counts of several answers to a case: their mean, whether any is right (pass@k), whether all are (pass^k).
    Example: `repeats: any`
    """

    model_config = {
        "json_schema_extra": {
            "not": {"required": ["per", "evalset"]},
            "allOf": [
                {
                    "if": {"properties": {"metric": {"const": metric.name}}, "required": ["metric"]},
                    "then": {
                        "oneOf": [{"required": [bound]} for bound in metric.bounds],
                        "properties": {
                            key: False
                            for key in (*BOUNDS, *(() if metric.kind == "latency" else ("percentile",)))
                            if key not in metric.bounds
                        }
                        | ({} if metric.kind == "quality" else {"repeats": {"const": "mean"}})
                        | ({} if metric.kind != "arm" else dict.fromkeys(("per", "evalset", "where"), False))
                        | ({} if "min" not in metric.bounds or metric.unit == "dB" else {"min": {"maximum": 1}}),
                    },
                }
                for metric in METRICS.values()
            ],
        }
    }

    @field_validator("max_drop", "max_relative_drop")
    @classmethod
    def _can_be_proven(cls, value: float, info: ValidationInfo) -> float:
        if value >= DROP_BELOW:
            raise stated(f"`{info.field_name}: {value:g}` {DROP_TOO_LARGE}")
        return value

    @model_validator(mode="after")
    def _fits_its_metric(self) -> RuleEntry:
        metric = METRICS[self.metric]
        given = [bound for bound in BOUNDS if getattr(self, bound) is not None]
        if len(given) != 1 or given[0] not in metric.bounds:
            fitting = "` or `".join(metric.bounds)
            raise stated(
                f"a rule on {self.metric} sets one bound, `{fitting}`; found {', '.join(given) if given else 'none'}"
            )
        if self.min is not None and self.min > 1 and metric.unit != "dB":
            raise stated(f"`min: {self.min:g}` of {self.metric} should be less than or equal to 1")
        if metric.kind == "arm" and not self.per is self.evalset is self.where is None:
            raise stated(
                f"{self.metric} is a number of the variant as a whole: `per`, `evalset` and `where` do not go with it"
            )
        if self.repeats != "mean" and metric.kind != "quality":
            raise stated(f"`repeats` goes with metrics of quality, not with {self.metric}")
        if self.percentile is not None and metric.kind != "latency":
            raise stated(f"`percentile` goes with latency metrics, not with {self.metric}")
        if self.per is not None and self.evalset is not None:
            raise stated("`per: evalset` means every set, `evalset: NAME` one of them; write one of the two")
        return self

    @property
    def bound(self) -> float:
        return next(value for bound in BOUNDS if (value := getattr(self, bound)) is not None)

    @property
    def label(self) -> str | None:
        """What `where` asks for, as `Case.labels` names it."""
        return None if self.where is None else f"tag:{self.where.tag}" if self.where.tag else f"task:{self.where.task}"


def _day(value: Any) -> str:
    text = value.isoformat() if isinstance(value, date) else value
    try:
        if isinstance(text, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise stated(f"`expires` is a day, YYYY-MM-DD, not {quote(value)}")


def _age(value: str) -> int:
    if not (found := re.fullmatch(AGE, value)) or not int(found[1]):
        raise stated(f"`max_age` is a number of hours or days such as 36h or 7d, not {quote(value)}")
    return int(found[1]) * {"h": 3600, "d": 86400}[found[2]]


AGE = "([0-9]{1,5})(h|d)"


def _plain_file(path: str, info: ValidationInfo) -> str:
    if not path:
        raise stated("a file's name is empty")
    if "://" in path:
        raise planned(f"a file at an address ({quote(path)})")
    expanded(path)
    if info.context and info.context["files"] and not os.path.isfile(info.context["folder"] / expanded(path)):
        raise stated(f"no file {quote(str(info.context['folder'] / expanded(path)), 200)}")
    return path


class QuarantineEntry(Written):
    """A case that does not count until the day on which this ends by itself, in one evalset or in every one."""

    example: ClassVar = "{case: ID, owner: WHO, expires: 2026-12-31, reason: WHY}"
    case: str = Field(min_length=1)
    """The case's id. Example: `case: c-17`"""
    evalset: str = Field(default=ABSENT, min_length=1)
    """The evalset it is in; left out, every set that has the id. Example: `evalset: support`"""
    owner: str = Field(min_length=1)
    """Who will mend the case. Example: `owner: ana`"""
    expires: Annotated[Any, AfterValidator(_day), WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"})]
    """The day on which the case counts again. Example: `expires: 2026-12-31`"""
    reason: str = Field(min_length=1)
    """Why it is held out. Example: `reason: two references are right`"""


class Gate(Written):
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    """One-sided error of each bound: 0.05 is a 95 % bound. Example: `alpha: 0.05`"""
    rules: list[RuleEntry] = Field(
        default=ABSENT,
        min_length=1,
        json_schema_extra={  # one that is critical, by word or by default, and on quality
            "contains": {
                "properties": {
                    "metric": {"enum": [name for name, metric in METRICS.items() if metric.kind == "quality"]},
                    "tier": {"const": "critical"},
                },
                "required": ["metric"],
            }
        },
    )
    """What must hold. At least one rule is critical and on quality. Example: `rules: [{metric: exact_match, max_drop:
    0.02}]`
    """
    nel_policy: Annotated[str, AfterValidator(_plain_file), NOT_AN_ADDRESS] = ABSENT
    """A NeMo Evaluator policy, version 1, that decides in place of `rules`. Example: `nel_policy: gate_policy.yaml`"""
    review: Literal["never", "always"] = "never"
    """`always` asks for a person where all rules are proven. Example: `review: always`"""
    stop: Literal["end", "early"] = "end"
    """`early` stops generating for a variant once its verdict is settled. Example: `stop: early`"""
    noise_floor: bool = False
    """Run the baseline a second time in other batches, and show what it changes by itself. Example: `noise_floor:
    true`
    """
    quarantine: list[QuarantineEntry] = []
    """Cases that do not count until a day, at most 2 % of all. Example: `quarantine: [{case: c-17, owner: ana,
    expires: 2026-12-31, reason: flaky}]`
    """
    max_age: Annotated[str, AfterValidator(_age), WithJsonSchema({"type": "string", "pattern": f"^{AGE}$"})] = ABSENT
    """Evidence older than this decides nothing; hours or days. Example: `max_age: 7d`"""
    model_config = {
        "json_schema_extra": {
            "oneOf": [
                {"required": ["rules"], "properties": {"nel_policy": False}},
                {
                    "required": ["nel_policy"],
                    "properties": {"rules": False, "alpha": False, "stop": {"const": "end"}},
                },
            ],
            "not": {
                "required": ["stop", "noise_floor"],
                "properties": {"stop": {"const": "early"}, "noise_floor": {"const": True}},
            },
        }
    }
    identity: Literal["hash", "ids"] = "hash"
    """Of score files: what pairs two rows, the hash of the case or its id alone. Example: `identity: ids`"""
    expected: str = Field(default=ABSENT, min_length=1)
    """Of score files: JSON lines with the `id` (and `evalset`) of every case that they must hold. Example: `expected:
    ids.jsonl`
    """

    @model_validator(mode="after")
    def _has_one_policy(self) -> Gate:
        if self.rules is None and self.nel_policy is None:
            raise stated("`gate.rules` is missing; or bring a NeMo Evaluator policy with `nel_policy: FILE`")
        if self.nel_policy is not None and self.rules is not None:
            raise stated("`rules` and `nel_policy` are two ways to decide; write one of them")
        if self.nel_policy is not None and self.stop == "early":
            raise stated("an nel policy is asked once, of every case; leave `stop: early` out")
        if self.nel_policy is not None and "alpha" in self.model_fields_set:
            raise stated("an nel policy has a level of its own (95 %, two-sided); leave `alpha` out")
        return self


class Workers(Written):
    example: ClassVar = "{count: 2}"
    backend: Annotated[str, Field(json_schema_extra={"const": "local"})] = "local"
    """Where jobs run: processes on this machine. Example: `backend: local`"""
    count: Annotated[
        Any,
        AfterValidator(_count),
        WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 1, "maximum": 256}, {"const": "auto"}]}),
    ] = 2
    """How many processes generate; `auto` is one for each core this process may use. Example: `count: 2`"""
    devices: Annotated[str, Field(json_schema_extra={"enum": ["auto", "cpu"]})] = "auto"
    """`auto` takes a GPU where torch sees one, `cpu` never. Example: `devices: cpu`"""

    @field_validator("backend")
    @classmethod
    def _local(cls, value: str) -> str:
        if value == "ray":
            raise planned("the Ray backend")
        if value != "local":
            raise stated(f"unknown backend {quote(value)}{nearest(value, ['local'])}")
        return value

    @field_validator("devices")
    @classmethod
    def _processor(cls, value: str) -> str:
        if value.startswith(("cuda", "mps", "xpu", "gpu")):
            raise planned(f"`devices: {value[:20]}`")
        if value not in ("auto", "cpu"):
            raise stated(f"unknown devices {quote(value)}{nearest(value, ['auto', 'cpu'])}")
        return value


class SloEntry(Written):
    """Service level objective, in seconds: what is slower was not delivered."""

    example: ClassVar = "{e2e: 10}"
    ttft: float = Field(default=ABSENT, gt=0)
    """Longest time to the first token, in seconds. Example: `ttft: 0.5`"""
    tpot: float = Field(default=ABSENT, gt=0)
    """Longest time per further token, in seconds. Example: `tpot: 0.05`"""
    e2e: float = Field(default=ABSENT, gt=0)
    """Longest time of the whole answer, in seconds. Example: `e2e: 10`"""
    model_config = {"json_schema_extra": {"minProperties": 1}}

    @model_validator(mode="after")
    def _asks_for_something(self) -> SloEntry:
        if self.ttft is None and self.tpot is None and self.e2e is None:
            raise stated("`slo` limits nothing; write for example {ttft: 0.5, tpot: 0.05, e2e: 10} (seconds)")
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


class GateFileModel(Written):
    """A qualgate gate file: which variants of which model are judged, on what, and by which rules."""

    version: Annotated[int, Field(json_schema_extra={"const": 1})]
    """Of the gate file's form. Example: `version: 1`"""
    baseline: Baseline
    """What every variant is held against. Example: `baseline: {model: ./models/support}`"""
    variants: dict[Annotated[str, AfterValidator(_variant_name)], Variant] = Field(
        min_length=1,
        json_schema_extra={
            "propertyNames": {"pattern": VARIANT_NAME, "not": {"pattern": "^[Bb][Aa][Ss][Ee][Ll][Ii][Nn][Ee]$"}}
        },
    )
    """Who asks to replace it, each under a name of your choice. Example: `variants: {int8: {quantize: int8}}`"""
    evalsets: list[
        Annotated[
            Any,
            AfterValidator(_evalset_ref),
            WithJsonSchema({"oneOf": [{"type": "string", "minLength": 1}, LM_EVAL_SCHEMA]}),
        ]
    ] = Field(min_length=1, json_schema_extra={"uniqueItems": True})
    """The cases: a shipped set's name, a path to one of yours, or a task of lm-eval's. Example: `evalsets:
    [tool_calls, ./ours/support.yaml]`
    """
    generation: Generation = Generation()
    """How answers are drawn. Example: `generation: {temperature: 0.7, seed: 5, repeats: 4}`"""
    gate: Gate
    """The policy: rules, error, and what else a verdict needs. Example: `gate: {rules: [{metric: exact_match,
    max_drop: 0.02}]}`
    """
    slo: SloEntry = ABSENT
    """Limits in seconds: what is slower was not delivered. Example: `slo: {ttft: 0.5, e2e: 10}`"""
    prices: Annotated[str, AfterValidator(_plain_file), NOT_AN_ADDRESS] = ABSENT
    """A price table, for rules on cost and for what `plan` says of cost. Example: `prices: prices.yaml`"""
    feedback: Annotated[str, AfterValidator(_plain_file), NOT_AN_ADDRESS] = ABSENT
    """JSON lines with what users said of answers. Example: `feedback: said.jsonl`"""
    four_arm: FourArmEntry = ABSENT
    """Judge baseline, quantization, speculation and both as four arms. Example: `four_arm: {parity: identical}`"""
    store: Annotated[
        str, AfterValidator(_store_url), Field(json_schema_extra={"pattern": "^sqlite:///(?!.*:memory:)[^?]*[^?/]$"})
    ] = "sqlite:///qualgate.db"
    """Where evidence is kept: `sqlite:///FILE` relative to the gate file, `sqlite:////FOLDER/FILE` absolute. Example:
    `store: sqlite:///qualgate.db`
    """
    workers: Workers = Workers()
    """Processes and devices that generate. Example: `workers: {count: 2}`"""

    @field_validator("version")
    @classmethod
    def _is_one(cls, value: int) -> int:
        if value != 1:
            raise stated(f"`version` must be 1, found {value}")
        return value
