"""The header of an evalset or a calibration set: NAME.yaml."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from qualgate.documents import ABSENT, Written, nearest, quote, stated
from qualgate.evalsets.simulation import Sources
from qualgate.records import Evalset
from qualgate.records.identity import content_hash
from qualgate.records.metrics import BY_LIKELIHOOD, LM_EVAL, METRICS, PLANNED

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
SCORED = tuple(  # by our own scorers
    name for name, metric in METRICS.items() if metric.kind == "quality" and not name.startswith(LM_EVAL)
)


ADDED = (
    "dialect",
    "served_by",
    "formats",
    "reasoning",
    "packages",
    "language",
    "pattern",
)  # keys of an evalset's YAML that are defaults for its cases


class SetFile(Written):
    """What every NAME.yaml says."""

    name: str = Field(pattern=f"^{NAME}$")
    """The set's name, which is the file's. Example: `name: support`"""
    version: str
    """Raised whenever a case changes. Example: `version: "1"`"""
    description: str = ""
    """What the set asks, for people. Example: `description: refunds and returns`"""
    sha256: str = Field(default=ABSENT, pattern="^[0-9a-f]{64}$")
    """Of the bytes of NAME.jsonl; a set whose cases hash to something else is refused. Example: `sha256:
    9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`
    """
    generator: str = ABSENT
    """What made the cases, for people. Example: `generator: ours.make_support`"""
    seed: int = ABSENT
    """The generator's seed, for people. Example: `seed: 7`"""

    @field_validator("version", mode="before")
    @classmethod
    def _whole_numbers_are_versions(cls, value: Any) -> Any:
        return str(value) if type(value) is int else value


class CalibrationFile(SetFile):
    """NAME.yaml of a calibration set. It judges nothing, so it has no metrics."""

    kind: Literal["calibration"]
    """Says that quantizers may see it, and that it judges nothing. Example: `kind: calibration`"""


class ServedByEntry(Written):
    """Whose tool parser reads texts for `tool_call.served`: that of a server's own Python environment."""

    example: ClassVar = "{engine: vllm, python: /opt/vllm/bin/python}"
    engine: Literal["vllm", "sglang"]
    """The server. Example: `engine: vllm`"""
    python: str = Field(min_length=1)
    """The interpreter of an environment in which it is installed; in an evalset's YAML an absolute path. It runs in a
    sandbox. Example: `python: /opt/vllm/bin/python`
    """


class EvalsetFile(SetFile):
    """NAME.yaml of an evalset."""

    kind: Literal["evalset", "calibration"] = "evalset"  # "calibration" never gets here: see `_read`
    """What the set is for. Example: `kind: evalset`"""
    metrics: list[str] = Field(min_length=1)
    """What every case is scored by. Example: `metrics: [exact_match, json.schema]`"""
    lenient: list[str] = []
    """What JSON's wrapping is forgiven: `code_fence`, `trailing_text`, or both. Example: `lenient: [code_fence]`"""
    normalizers: list[str] = []
    """What `exact_match` takes off before it compares, in order. Example: `normalizers: [casefold]`"""
    dialect: str = ABSENT
    """How the tool calls of every case that declares nothing are written; `auto`: as the baseline's chat
    template teaches, and where that tells of none, any dialect that reads calls. Example: `dialect: mistral`
    """

    served_by: ServedByEntry = ABSENT
    """Whose tool parser reads texts for `tool_call.served`, of every case that declares nothing. Example: `served_by:
    {engine: vllm, python: /opt/vllm/bin/python}`
    """

    reasoning: str = ABSENT
    """How thoughts are written that are taken off before anything is scored, of every case that declares nothing:
    `think`, `seed`, either with `_opened` where the prompt ends in the marker, `harmony`, `none`; `auto`: as the
    baseline's chat template has it. Example: `reasoning: think`
    """

    formats: Literal["assert", "annotate"] = ABSENT
    """What `format` in a case's JSON Schema does: `assert` checks it, `annotate` (as JSON Schema has it) does not.
    Example: `formats: assert`
    """

    packages: list[str] = ABSENT
    """What programs of every case that declares nothing, and simulated tools, may import beside the standard library:
    names of packages, with versions or without, of which wheels are installed once for the sandbox. Example:
    `packages: [numpy==2.3.4]`
    """

    simulation: str = Field(default=ABSENT, min_length=1)
    """The Python file beside the YAML, or the folder of them, whose classes are the simulated tools that `turns.state`
    runs in the sandbox. Example: `simulation: tools.py`
    """

    language: str = ABSENT
    """What `format.same_language` holds every answer to whose case declares none: a code such as `en`, `es`, `zh`.
    Example: `language: es`
    """

    pattern: str = Field(default=ABSENT, min_length=1)
    """The regular expression of `pattern`, of every case that has none; its group holds what `answer` must equal.
    Example: `pattern: "Answer: ([A-D])"`
    """

    @field_validator("metrics")
    @classmethod
    def _metrics_are_scored(cls, names: list[str]) -> list[str]:
        """Check that metrics exist, are scored by sets, and are not read from choices and answers at once."""
        _refuse_twice("metric", names)
        for name in names:
            if name in PLANNED:
                raise stated(f"the metric {name!r} is not in this version")
            if name in METRICS and name not in SCORED:
                raise stated(f"{name!r} is not scored by an evalset: name it in a rule of a gate file")
            if name not in SCORED:
                raise stated(f"unknown metric {quote(name)}{nearest(name, SCORED)}")
        if (others := [name for name in names if name not in BY_LIKELIHOOD]) and len(others) < len(names):
            weighed = next(name for name in names if name in BY_LIKELIHOOD)
            raise stated(f"{weighed!r} scores given choices, {others[0]!r} a written answer: make two sets of them")
        return names

    @field_validator("lenient")
    @classmethod
    def _modes_are_known(cls, names: list[str]) -> list[str]:
        from qualgate.scoring.strict_json import LENIENT

        return _known("lenient mode", names, LENIENT)

    @field_validator("normalizers")
    @classmethod
    def _normalizers_are_known(cls, names: list[str]) -> list[str]:
        from qualgate.scoring.text import known

        return _known("normalizer", names, known())

    @field_validator("packages")
    @classmethod
    def _packages_are_names(cls, names: list[str]) -> list[str]:
        """Check that `packages` names at least one package, and nothing else."""
        from qualgate.scoring.code import package_faults

        if not names:
            raise stated("`packages` is empty: write for example `packages: [numpy]`, or leave the key out")
        for message in package_faults({"packages": names}):
            raise stated(message)
        return names

    @field_validator("language")
    @classmethod
    def _language_is_told(cls, code: str) -> str:
        from qualgate.scoring.language import faults

        for message in faults({"language": code}):
            raise stated(message)
        return code

    @field_validator("dialect")
    @classmethod
    def _dialect_is_known(cls, name: str) -> str:
        from qualgate.scoring.tools.dialects.registry import AUTO, names

        return _known("dialect", [name], (AUTO, *names()))[0]

    @field_validator("reasoning")
    @classmethod
    def _way_is_known(cls, name: str) -> str:
        from qualgate.scoring.reasoning import AUTO, WAYS

        return _known("way of reasoning", [name], (*WAYS, AUTO))[0]


def _known(kind: str, names: list[str], known: Any) -> list[str]:
    _refuse_twice(kind, names)
    for name in names:
        if name not in known:
            raise stated(f"unknown {kind} {quote(name)}{nearest(name, known)}")
    return names


def _refuse_twice(kind: str, names: list[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise stated(f"the {kind} {twice[0]!r} twice")


def added_to_cases(header: SetFile, simulation: Sources = ()) -> dict[str, Any]:
    """Defaults from the YAML for its cases, part of each case and its hash; of simulated tools, their hash."""
    if not isinstance(header, EvalsetFile):
        return {}
    added = {name: value for name in ADDED if (value := getattr(header, name))}
    if header.served_by:
        added["served_by"] = header.served_by.model_dump()
    return added | {"simulation": content_hash(simulation)} if simulation else added


def as_evalset(header: EvalsetFile) -> Evalset:
    """The evalset as far as the YAML alone describes it."""
    settings: dict[str, Any] = {name: tuple(getattr(header, name)) for name in ("metrics", "lenient", "normalizers")}
    # what a case alone says of those three is read
    settings |= {name: value for name, value in added_to_cases(header).items() if name in ("dialect", "formats")}
    return Evalset(name=header.name, version=header.version, sha256="", **settings)
