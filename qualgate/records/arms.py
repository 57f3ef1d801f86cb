"""Arms: as planned, and as they were once loaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from qualgate.records.counters import DraftWindow, joined
from qualgate.records.recipe import QuantizeRecipe
from qualgate.records.served import Probe, Served
from qualgate.records.speculation import Speculation
from qualgate.records.spending import Spent

NOISE = "@aa"  # suffix of the A/A arm: the baseline's own weights in other batches; no variant's name can end so
TWIN = "@torch"  # likewise, of the arm that runs a variant's weights through the torch twin
WIDE = "@kv"  # likewise, of the variant with the baseline's KV cache
PLAIN = "@plain"  # likewise, of the variant without its draft
DEVICE_MEMORY = "device.memory"  # the fact: bytes of the device that the arm ran on
CACHE_TOKEN = "memory.cache_token"  # the fact: bytes of one token's keys and values, in the arm's dtype
# Marks after the name of a model that answered, from a gateway's headers:
FROM_CACHE, BY_FALLBACK, DEPLOYMENT = MARKS = (" (from a cache)", " (by fallback)", " (deployment {})")
UNNAMED = "no name"  # stands for the model's name if a reply has none
SHORT_ID = "?"  # ends the hash of a reply with an id that other servers may give, too: a count, a three-digit number
Kept = Literal["float32", "bf16", "fp8", "int8", "int4"]  # format of the KV cache
ReadAs = Literal["transformers", "vllm", "sglang", "llama.cpp"]  # the server whose reading of a folder is judged
Arithmetic = Literal["float32", "served"]  # of a run: exact float32, or rounded where a server stores
DRAFT_WEIGHTS = "memory.draft_weights"  # the fact: bytes of its draft models' weights, a part of "memory.weights"
DRAFT_WORKSPACE = "memory.draft_workspace"  # the fact: bytes that drafting for one sequence holds beside all that


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter over an arm's weights: separate, as in servers, or merged into them at load."""

    path: str  # folder with adapter_config.json and adapter_model.safetensors
    merged: bool = False

    @property
    def label(self) -> str:
        """For people: "LoRA support-lora", "LoRA support-lora merged"."""
        return f"LoRA {self.path.rstrip('/').rpartition('/')[2]}{' merged' if self.merged else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """One arm of a run as planned: its weights, and how they are made."""

    name: str  # "baseline" or the variant's key in the gate file
    model: str  # folder with config.json, tokenizer and safetensors; of a served arm the server's name for its model
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"  # of the weights that are not quantized
    quantize: QuantizeRecipe | None = None
    kernels: Literal["fused", "torch"] = "fused"  # "torch": packed weights through the torch twin, for `--blame`
    dtype_said: bool = True  # by the gate file; False: servers take what the folder's config says
    calibration: str = ""  # of a folder: the cases that it was calibrated with, as the gate file says; "" = not told
    calibration_sha256: str = ""
    speculation: Speculation | None = None
    kv_cache: Kept = "float32"
    kv_said: bool = False  # by the gate file; False: servers take what the folder declares
    adapter: Adapter | None = None
    arithmetic: Arithmetic = "float32"  # of the whole run, each of its arms the same
    served: Served | None = None  # who answers; None: our own engine
    read_as: ReadAs | None = None  # None: what servers read otherwise is refused
    allow_config: tuple[str, ...] = ()  # keys of its configs that may be unknown, or others than the baseline's
    another_model: bool = False  # made on purpose from another model than the baseline, by pruning or distilling
    config_differences: tuple[str, ...] = ()  # the plan's: what of its architecture is meant to be other, in words

    @property
    def reads(self) -> str:
        """The folder of the tokenizer and template; "" if the server tokenizes."""
        return self.model if self.served is None else self.served.tokenizer

    @property
    def drafts(self) -> bool:
        """Whether the arm has a draft, here or, by declaration, at its server."""
        return self.speculation is not None or (self.served is not None and self.served.drafts)

    @property
    def limited_as(self) -> tuple[str, ...]:
        """What a server's limit applies to: its address, the model, the key and what else requests carry, by which a
        gateway may choose who answers; () without a server."""
        if (served := self.served) is None:
            return ()
        more = str((*served.extra_headers, *served.extra_query))
        return served.endpoint, self.model, served.api_key_env, served.extra_body, more

    def asked_whole(self, why: str) -> ArmSpec:
        """A copy whose server is asked for whole answers, for the reason `why`; unchanged for ""."""
        return self if not why or self.served is None else replace(self, served=replace(self.served, whole=why))

    @property
    def is_baseline(self) -> bool:
        """Whether this is the baseline; gate files cannot give a variant its name."""
        return self.name == "baseline"

    @property
    def target_name(self) -> str:
        """For people: folder and weights, as in "support-7b, int4 g32"."""
        return f"{self.model.rstrip('/').rpartition('/')[2]}, {self.weights_label}"

    @property
    def weights_label(self) -> str:
        """Format of the weights ("bfloat16", "int4 g32", …) and what is `beside` them; of a served arm its server, as
        the format is unknown."""
        if self.served is not None:
            return self.served.label
        return (self.quantize.label if self.quantize else self.dtype) + self.beside

    @property
    def beside(self) -> str:
        """Adapter, KV cache and arithmetic unless default: " + LoRA support, KV int8, served"; "" if all are
        default."""
        adapter = f" + {self.adapter.label}" if self.adapter else ""
        cache = "" if self.kv_cache == "float32" else f", KV {self.kv_cache}"
        return adapter + cache + ("" if self.arithmetic == "float32" else f", {self.arithmetic}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmIdentity:
    """Content hashes of a loaded arm. Equal template, tokenizer and sampling make a pair comparable."""

    weights: str  # sha256 over the safetensors files, the recipe and the adapter
    config: str  # sha256 of config.json
    tokenizer: str  # sha256 of the tokenizer's files
    template: str  # sha256 of the chat template's text ("" hashed when there is none)
    sampling: str  # sha256 of temperature, seed, repeats, stop rules
    engine: str  # version and arithmetic, e.g. "qualgate 0.1.0 torch cpu float32"
    speculation: str = ""  # sha256 of proposers, rule, γ and the draft models' files; "" where nobody drafts
    kv_cache: str = ""  # how keys and values are held, and whether by the checkpoint's scales; "" in float32
    served: str = ""  # the server's description of itself, which cannot be checked; "" for our own engine
    adapter: str = ""  # sha256 of its adapter's files and how they are used, on which `weights` rests too; "" of none
    adapted: str = ""  # `weights` of the same arm without its adapter; "" of an arm without one

    @property
    def content(self) -> dict[str, str]:
        """The identity as plain JSON."""
        return asdict(self)

    @property
    def bare(self) -> str:
        """`weights` without the adapter: arms with equal ones differ at most by their adapters."""
        return self.adapted or self.weights


Overflow = tuple[int, str, int]  # a module's place in the forward pass, its name, how many values were beyond the dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How an arm's answers were generated, over all of its jobs.

    engine: see `engine.choice`. passes: forward passes. tokens: generated tokens. forked: answers that left the
    baseline's answer they were drafted from; rejoined: those of them that returned to it for some tokens. checked:
    tokens generated again, plainly and alone; otherwise: those of them that differed. parted: passes split for want of
    memory. drafting: passes that could have drafts; rested: those of them without any, as drafts were not expected to
    pay; because: the latest reason. broken_drafts: drafts that ended with NaN or infinite logits, so that the target
    continued alone. peak: peak memory of its process in any job, in bytes, libraries included; device_peak: of its GPU;
    0: unknown. windows: draft counters of its server; uncounted: why a job at least has none; "" for our own engine.
    drawing: evidence that a server does not sample, see `stats.greedy_sampler`; () without any. answered_by: names of
    models in replies, with the number of replies, marked as above. asked_whole: why a server was asked for whole
    answers though its arm is streamed, "" if it was not.
    """

    engine: str = ""
    passes: int = 0
    tokens: int = 0
    forked: int = 0
    rejoined: int = 0
    checked: int = 0
    otherwise: int = 0
    parted: int = 0
    drafting: int = 0
    rested: int = 0
    because: str = ""
    broken_drafts: int = 0
    peak: int = 0
    device_peak: int = 0
    windows: tuple[DraftWindow, ...] = ()
    uncounted: str = ""
    drawing: tuple[float, ...] = ()
    answered_by: tuple[tuple[str, int], ...] = ()
    asked_whole: str = ""

    def __add__(self, other: Generation) -> Generation:
        """Add up two generations; lists both engines if they differ."""
        engines = dict.fromkeys(name for name in (self.engine, other.engine) if name)
        return Generation(
            engine=", ".join(engines),
            passes=self.passes + other.passes,
            tokens=self.tokens + other.tokens,
            forked=self.forked + other.forked,
            rejoined=self.rejoined + other.rejoined,
            checked=self.checked + other.checked,
            otherwise=self.otherwise + other.otherwise,
            parted=self.parted + other.parted,
            drafting=self.drafting + other.drafting,
            rested=self.rested + other.rested,
            because=other.because or self.because,
            broken_drafts=self.broken_drafts + other.broken_drafts,
            peak=max(self.peak, other.peak),
            device_peak=max(self.device_peak, other.device_peak),
            windows=joined((*self.windows, *other.windows)),
            uncounted=self.uncounted or other.uncounted,
            drawing=tuple(map(sum, zip(self.drawing, other.drawing, strict=True)))
            if self.drawing and other.drawing
            else self.drawing or other.drawing,
            answered_by=tuple(sorted((Counter(dict(self.answered_by)) + Counter(dict(other.answered_by))).items())),
            asked_whole=self.asked_whole or other.asked_whole,
        )


UNTOLD = Generation()  # of arms that were not run, and of files


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFootprint:
    """Measured sizes of one loaded arm."""

    bytes_on_disk: int  # of its weight files
    bytes_in_memory: int  # parameters and packed buffers after loading
    quantized_bytes: int  # packed codes and scales alone, 0 for the baseline
    effective_bits: float  # 8 * bytes_in_memory / number of weights
    facts: dict[str, float] = field(default_factory=dict)  # see `ArmEvidence.facts`
    unmeasured: dict[str, str] = field(default_factory=dict)  # likewise
    # Tensors of its files that do not influence its answers, by name with * for each number → count: heads for further
    # tokens, vision, recomputed buffers, scales of a quantized cache.
    left_out: dict[str, int] = field(default_factory=dict)
    overflow: tuple[Overflow, ...] = ()  # of all its answers, in the order of the forward pass
    generation: Generation = UNTOLD  # likewise
    probes: tuple[Probe, ...] = ()  # of a served arm: probes of its server before the first case
    spent: Spent | None = None  # likewise: cost of all requests to its server; None: not counted
