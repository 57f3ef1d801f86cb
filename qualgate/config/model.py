"""The gate file as one type, for the loader and for the editor's JSON Schema.

Its sections are in the modules beside this one: `arms`, `evalset_refs`, `rules`; `paths` defines how paths are written.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from qualgate.config.arms import VARIANT_NAME, ArithmeticAs, Baseline, FourArmEntry, Variant, VariantName
from qualgate.config.budget import BudgetEntry
from qualgate.config.evalset_refs import EvalsetRef
from qualgate.config.judge import JudgeEntry
from qualgate.config.load import LoadEntry
from qualgate.config.paths import PlainFile, StoreUrl
from qualgate.config.rules import Gate, SloEntry
from qualgate.documents import ABSENT, Written, nearest, planned, quote, stated
from qualgate.evalsets import ServedByEntry
from qualgate.records import MOST_PENALTY, MOST_REPETITION, TEMPERATURES, Sampling

COLDEST, HOTTEST = TEMPERATURES
CUTS = "top_k", "top_p", "min_p"  # of what is drawn
PENALTIES = "repetition_penalty", "presence_penalty", "frequency_penalty"
MOST_REPEATS = 1_000  # answers to a case
ADDRESS = r"^(auto|[^/\s]+:[0-9]{1,5})$"  # of a cluster
JOB_TIMEOUT, MOST_JOB_TIMEOUT = 7_200.0, 604_800.0  # s: two hours; a week


class Generation(Written):
    """How answers are drawn, unless an evalset says its own. Temperature 0 says the likeliest token."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {
                "anyOf": [
                    {"required": ["repeats"], "properties": {"repeats": {"minimum": 2}}},
                    *({"required": [name]} for name in CUTS),
                ]
            },
            "then": {"required": ["temperature"], "properties": {"temperature": {"exclusiveMinimum": 0}}},
        }
    )
    example: ClassVar = "{temperature: 0}"
    temperature: Annotated[
        float, Field(json_schema_extra={"anyOf": [{"const": 0}, {"minimum": COLDEST, "maximum": HOTTEST}]})
    ] = 0.0
    """0 takes the likeliest token; above it, tokens are drawn. Evalsets of lm-eval that say their own keep it.
    Example: `temperature: 0.7`
    """
    top_k: Annotated[int, Field(json_schema_extra={"minimum": 1})] = ABSENT
    """Draw from this many of the likeliest tokens; without it, from all. Example: `top_k: 40`"""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Then draw from as few of the likeliest as hold this share of what is left. Example: `top_p: 0.95`"""
    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Then draw from tokens at least this share as likely as the likeliest. Example: `min_p: 0.05`"""
    repetition_penalty: float = Field(default=1.0, gt=0, le=MOST_REPETITION)
    """Logits of tokens that the prompt or the answer holds already are divided by it where above 0, else multiplied; 1
    changes none. At temperature 0 too, as the next two. Example: `repetition_penalty: 1.1`
    """
    presence_penalty: float = Field(default=0.0, ge=-MOST_PENALTY, le=MOST_PENALTY)
    """Taken off the logit of each token that the answer holds already. Example: `presence_penalty: 0.5`"""
    frequency_penalty: float = Field(default=0.0, ge=-MOST_PENALTY, le=MOST_PENALTY)
    """Taken off as many times as the answer holds the token already. Example: `frequency_penalty: 0.2`"""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of every draw: sampled tokens, the order of cases with `stop: early`. Example: `seed: 5`"""
    repeats: Annotated[int, Field(json_schema_extra={"minimum": 1, "maximum": MOST_REPEATS})] = 1
    """Answers to each case; more than one needs a temperature. Example: `repeats: 4`"""
    drift: float = Field(default=1.0, ge=0, le=1)
    """Share of each evalset's cases with answers whose drift is measured, where no rule is on `drift.kl_*` or
    `drift.top1_agreement`; reading the baseline's answers takes time. Example: `drift: 0.2`
    """

    @field_validator("temperature")
    @classmethod
    def _in_range(cls, value: float) -> float:
        if value < 0:
            raise stated("`generation.temperature` must not be negative")
        if value and not COLDEST <= value <= HOTTEST:
            raise stated(f"`generation.temperature` is 0 (the likeliest token) or from {COLDEST:g} to {HOTTEST:g}")
        return value

    @field_validator("top_k")
    @classmethod
    def _some(cls, value: int) -> int:
        if value < 1:
            raise stated(
                f"`generation.top_k` is a whole number from 1 (found {value}); to draw from all tokens, leave it out"
            )
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

    @model_validator(mode="after")
    def _cuts_a_draw(self) -> Generation:
        """Refuse settings that restrict sampling at temperature 0, where nothing is drawn."""
        cuts = [name for name in CUTS if name in self.model_fields_set]
        if cuts and not self.temperature:
            raise stated(
                f"`generation.{cuts[0]}` limits which tokens may be drawn, but at temperature 0 nothing is drawn: the "
                f"likeliest token is taken; add a temperature such as 0.7, or leave `{'`, `'.join(cuts)}` out"
            )
        return self

    @property
    def sampling(self) -> Sampling:
        """Sampling settings as a record."""
        penalties = {name: getattr(self, name) for name in PENALTIES}
        cuts = {"top_k": self.top_k or 0, "top_p": self.top_p, "min_p": self.min_p}
        return Sampling(temperature=self.temperature, **cuts, **penalties)


MOST_GPUS = 64
_GPU = {"type": "integer", "minimum": 0, "exclusiveMaximum": MOST_GPUS}
_GPUS = {"type": "array", "minItems": 1, "uniqueItems": True, "items": _GPU}
DEVICES = {"oneOf": [{"enum": ["auto", "cpu"]}, _GPUS, _GPUS | {"items": _GPUS}]}


def _count(count: Any) -> Any:
    if count != "auto" and (type(count) is not int or not 1 <= count <= 256):
        raise stated(f"`workers.count` is a whole number from 1 to 256, or auto; found {quote(count)}")
    return count


def _devices(devices: Any) -> Any:
    """Check `devices`: auto, cpu, or distinct numbers of GPUs. Numbers become a tuple of equally large groups."""
    if isinstance(devices, str):
        if devices.startswith(("cuda", "mps", "xpu", "gpu")):
            raise planned(f"`devices: {devices[:20]}`")
        if devices not in ("auto", "cpu"):
            raise stated(f"unknown devices {quote(devices)}{nearest(devices, ['auto', 'cpu'])}")
        return devices
    groups = [entry if isinstance(entry, list) else [entry] for entry in devices] if isinstance(devices, list) else []
    gpus = [gpu for group in groups for gpu in group]
    numbers = all(type(gpu) is int and 0 <= gpu < MOST_GPUS for gpu in gpus)
    if not gpus or not numbers or len(set(gpus)) < len(gpus):
        raise stated(
            "`workers.devices` is auto, cpu, or a list of GPU numbers, each once: [0, 1], or [[0, 1], [2, 3]] for "
            f"models that need two GPUs; found {quote(devices)}"
        )
    if len({isinstance(entry, list) for entry in devices}) > 1 or len({len(group) for group in groups}) > 1:
        raise stated(
            "`workers.devices` must give every process the same number of GPUs, as in [[0, 1], [2, 3]]: else times "
            f"depend on which process answered; found {quote(devices)}"
        )
    return tuple(tuple(group) for group in groups)


class Workers(Written):
    """How many processes generate, and on which devices."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"required": ["address"]},
            "then": {"required": ["backend"], "properties": {"backend": {"const": "ray"}}},
        }
    )
    example: ClassVar = "{count: 2}"
    backend: Annotated[str, Field(json_schema_extra={"enum": ["local", "ray"]})] = "local"
    """Where batches run: `local` on this machine, `ray` on the nodes of a Ray cluster. Example: `backend: ray`"""
    address: Annotated[str, Field(json_schema_extra={"pattern": ADDRESS})] = ABSENT
    """Of the Ray cluster: `auto` for the one that this machine is a node of, else HOST:PORT. Left out, the run starts
    one on this machine, and ends it. Example: `address: auto`
    """
    count: Annotated[
        Any,
        AfterValidator(_count),
        WithJsonSchema({"oneOf": [{"type": "integer", "minimum": 1, "maximum": 256}, {"const": "auto"}]}),
    ] = 2
    """How many processes generate, on a cluster in all; `auto` is one for each core this process may use, on a cluster
    one for each GPU, or without them for each node. Example: `count: 2`
    """
    devices: Annotated[Any, AfterValidator(_devices), WithJsonSchema(DEVICES)] = "auto"
    """`auto` takes a GPU where torch sees one, `cpu` never; numbers are GPUs of one kind, as nvidia-smi counts them,
    each with a process of its own; lists of them share a process each, whose models lie over them. Example:
    `devices: [0, 1]`
    """
    job_timeout: Annotated[float, Field(ge=1, le=MOST_JOB_TIMEOUT)] = JOB_TIMEOUT
    """Seconds in which a process is to answer a batch, loading its model included. One that hangs for longer is ended,
    and its batch tried again, three times at most. Example: `job_timeout: 3600`
    """

    @field_validator("backend")
    @classmethod
    def _local(cls, value: str) -> str:
        if value not in ("local", "ray"):
            raise stated(f"unknown backend {quote(value)}{nearest(value, ['local', 'ray'])}")
        return value

    @field_validator("address")
    @classmethod
    def _place(cls, value: str) -> str:
        if re.search(ADDRESS, value):
            return value
        client = " (a run is no Ray client: start it on a node of the cluster)" if value.startswith("ray://") else ""
        raise stated(f"`workers.address` is auto or HOST:PORT; found {quote(value)}{client}")

    @model_validator(mode="after")
    def _address_of_a_cluster(self) -> Workers:
        if self.address and self.backend != "ray":
            raise stated("`workers.address` is for a Ray cluster; add `backend: ray`, or leave `address` out")
        return self

    @model_validator(mode="after")
    def _one_a_device(self) -> Workers:
        """Check that named GPUs are used here, by one process for each group."""
        if not isinstance(self.devices, tuple):
            return self
        if self.backend == "ray":
            raise stated(
                "`workers.devices` names GPUs of this machine, but on a cluster Ray assigns them: leave `devices` out"
            )
        if "count" in self.model_fields_set and self.count != len(self.devices):
            raise stated(
                f"`workers.count` is {self.count}, but each of the {len(self.devices)} `devices` gets its own process: "
                "leave `count` out"
            )
        return self


class GateFileModel(Written):
    """A qualgate gate file: which variants of which model are judged, on what, and by which rules."""

    version: Annotated[int, Field(json_schema_extra={"const": 1})]
    """Of the gate file's form. Example: `version: 1`"""
    baseline: Baseline
    """What every variant is held against. Example: `baseline: {model: ./models/support}`"""
    variants: dict[VariantName, Variant] = Field(
        min_length=1,
        json_schema_extra={
            "propertyNames": {"pattern": VARIANT_NAME, "not": {"pattern": "^[Bb][Aa][Ss][Ee][Ll][Ii][Nn][Ee]$"}}
        },
    )
    """Who asks to replace it, each under a name of your choice. Example: `variants: {int8: {quantize: int8}}`"""
    evalsets: list[EvalsetRef] = Field(min_length=1, json_schema_extra={"uniqueItems": True})
    """The cases: a shipped set's name, a path to one of yours, or a task of lm-eval's. Example: `evalsets:
    [tool_calls, ./ours/support.yaml]`
    """
    generation: Generation = Generation()
    """How answers are drawn. Example: `generation: {temperature: 0.7, seed: 5, repeats: 4}`"""
    arithmetic: ArithmeticAs = "float32"
    """`float32` computes exactly, which isolates what the weights lost; `served` rounds activations, keys and values to
    each arm's dtype wherever a server stores them. Left out, it is `float32` on a CPU and `served` on a GPU with
    the extra `kernels`, where models have a dtype to round to. Example: `arithmetic: served`
    """
    gate: Gate
    """The policy: rules, error, and what else a verdict needs. Example: `gate: {rules: [{metric: exact_match,
    max_drop: 0.02}]}`
    """
    slo: SloEntry = ABSENT
    """Limits in seconds: what is slower was not delivered. Example: `slo: {ttft: 0.5, e2e: 10}`"""
    load: LoadEntry = ABSENT
    """How `qualgate load` asks served arms to time them. Example: `load: {concurrency: [1, 4, 16], seconds: 60}`"""
    budget: BudgetEntry = ABSENT
    """What a run may spend on servers, in tokens or money. Example: `budget: {max_tokens_total: 2000000}`"""
    prices: PlainFile = ABSENT
    """A price table, for rules on cost and for what `plan` says of cost. Example: `prices: prices.yaml`"""
    feedback: PlainFile = ABSENT
    """JSON lines with what users said of answers. Example: `feedback: said.jsonl`"""
    judge: JudgeEntry = ABSENT
    """Who compares answers, for rules on `judge.win`. Example: `judge: {endpoint: http://127.0.0.1:8100/v1, model:
    judge-70b, rubric: The answer that solves the problem is better., labels: labels.jsonl}`
    """
    served_by: ServedByEntry = ABSENT
    """Whose tool parser reads texts for `tool_call.served`, of every case that declares nothing. Where all arms are
    served, their servers' own calls decide. Example: `served_by: {engine: vllm, python: ./vllm/bin/python}`
    """
    four_arm: FourArmEntry = ABSENT
    """Judge baseline, quantization, speculation and both as four arms. Example: `four_arm: {parity: identical}`"""
    store: StoreUrl = "sqlite:///qualgate.db"
    """Where evidence is kept: `sqlite:///FILE` relative to the gate file, `sqlite:////FOLDER/FILE` absolute, or a
    database that machines share, `postgresql://USER@HOST/DATABASE` without a password (docs/postgresql.md). Example:
    `store: sqlite:///qualgate.db`
    """
    workers: Workers = Workers()
    """Processes and devices that generate. Example: `workers: {count: 2}`"""

    @property
    def noise_floor(self) -> bool:
        """Whether the baseline answers twice: as the file says, else if a server answers for it, which may not repeat
        itself. Early looks leave no two whole lists to compare."""
        setting = self.gate.noise_floor
        return setting if setting is not None else self.baseline.is_served and self.gate.stop == "end"

    @model_validator(mode="before")
    @classmethod
    def _went(cls, value: Any) -> Any:
        if isinstance(value, dict) and "lease" in value:
            raise stated(
                "`lease` was removed from qualgate: leave it out. To run beyond this machine, use a Ray cluster: "
                "`qualgate submit GATE.yaml --cluster http://HEAD:8265`"
            )
        return value

    @field_validator("version")
    @classmethod
    def _is_one(cls, value: int) -> int:
        if value != 1:
            raise stated(f"`version` must be 1, found {value}")
        return value
