"""Which weights answer: an arm as it is planned, and what it really was once loaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

from qualgate.records.counters import DraftWindow, joined
from qualgate.records.recipe import QuantizeRecipe
from qualgate.records.served import Probe, Served
from qualgate.records.speculation import Speculation
from qualgate.records.spending import Spent

NOISE = "@aa"  # ends the name of the A/A arm: the baseline's own weights in other batches
TWIN = "@torch"  # ends the name of the arm that runs a variant's weights through the torch twin; no variant's can
WIDE = "@kv"  # ends the name of the arm that holds a variant's keys and values as the baseline's; likewise
PLAIN = "@plain"  # ends the name of the arm that decodes a variant's answers without its draft; likewise
DEVICE_MEMORY = "device.memory"  # the fact: bytes of the device that the arm ran on
CACHE_TOKEN = "memory.cache_token"  # the fact: bytes of one token's keys and values, in the arm's dtype
# Behind the name of a model that answered, where the headers of a gateway tell:
FROM_CACHE, BY_FALLBACK, DEPLOYMENT = MARKS = (" (from a cache)", " (by fallback)", " (deployment {})")
UNNAMED = "no name"  # who answered where a reply does not tell
SHORT_ID = "?"  # ends the hash of a reply whose id another server may give too: a count, a number of three digits
Kept = Literal["float32", "bf16", "fp8", "int8", "int4"]  # how keys and values are held
ReadAs = Literal["transformers", "vllm", "sglang", "llama.cpp"]  # whose reading of a folder is judged
Arithmetic = Literal["float32", "served"]  # of a run: exact float32, or rounded where a server stores
DRAFT_WEIGHTS = "memory.draft_weights"  # the fact: bytes of its draft models' weights, a part of "memory.weights"
DRAFT_WORKSPACE = "memory.draft_workspace"  # the fact: bytes that drafting for one sequence holds beside all that


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A LoRA adapter over an arm's weights: kept apart of them, as servers do, or merged into them at load."""

    path: str  # folder with adapter_config.json and adapter_model.safetensors
    merged: bool = False

    @property
    def label(self) -> str:
        """For people: "LoRA support-lora", "LoRA support-lora merged"."""
        return f"LoRA {self.path.rstrip('/').rpartition('/')[2]}{' merged' if self.merged else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """One arm of a run as planned: which weights, made how."""

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
        """The folder whose tokenizer and template make its tokens; "" where its server makes them."""
        return self.model if self.served is None else self.served.tokenizer

    @property
    def drafts(self) -> bool:
        """Whether it has a draft of its own, here or, as it is said to, at its server."""
        return self.speculation is not None or (self.served is not None and self.served.drafts)

    def asked_whole(self, why: str) -> ArmSpec:
        """Itself with its server asked for whole answers; as it is, where why is ""."""
        return self if not why or self.served is None else replace(self, served=replace(self.served, whole=why))

    @property
    def is_baseline(self) -> bool:
        """No variant can be called so: a gate file that tries is refused."""
        return self.name == "baseline"

    @property
    def target_name(self) -> str:
        """For people: folder and weights, as in "support-7b, int4 g32"."""
        return f"{self.model.rstrip('/').rpartition('/')[2]}, {self.weights_label}"

    @property
    def weights_label(self) -> str:
        """How the weights are held: "bfloat16", "int4 g32", …; and what is `beside` them. Of a served arm who serves
        it: how its weights are held, nobody here knows."""
        if self.served is not None:
            return self.served.label
        return (self.quantize.label if self.quantize else self.dtype) + self.beside

    @property
    def beside(self) -> str:
        """An adapter, how keys and values are held, and how it computes where not in float32: " + LoRA support, KV
        int8, served"; "" where none is said."""
        adapter = f" + {self.adapter.label}" if self.adapter else ""
        cache = "" if self.kv_cache == "float32" else f", KV {self.kv_cache}"
        return adapter + cache + ("" if self.arithmetic == "float32" else f", {self.arithmetic}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmIdentity:
    """What an arm really was, by content. Equal template, tokenizer and sampling make a pair comparable."""

    weights: str  # sha256 over the safetensors files, the recipe and the adapter
    config: str  # sha256 of config.json
    tokenizer: str  # sha256 of the tokenizer's files
    template: str  # sha256 of the chat template's text ("" hashed when there is none)
    sampling: str  # sha256 of temperature, seed, repeats, stop rules
    engine: str  # version and arithmetic, e.g. "qualgate 0.1.0 torch cpu float32"
    speculation: str = ""  # sha256 of proposers, rule, γ and the draft models' files; "" where nobody drafts
    kv_cache: str = ""  # how keys and values are held, and whether by the checkpoint's scales; "" in float32
    served: str = ""  # what a server says of itself, which nobody here can check; "" of our own engine
    adapter: str = ""  # sha256 of its adapter's files and how they are used, on which `weights` rests too; "" of none
    adapted: str = ""  # `weights` of the same arm without its adapter; "" of an arm without one

    @property
    def content(self) -> dict[str, str]:
        """As plain JSON."""
        return asdict(self)

    @property
    def bare(self) -> str:
        """`weights` without what an adapter adds to them: arms of the same differ by their adapters at most."""
        return self.adapted or self.weights


Overflow = tuple[int, str, int]  # a module's place in the forward pass, its name, how many values were beyond the dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How an arm's answers came about, over all of its jobs.

    engine: what ran them, see `engine.choice`; passes: forward passes; tokens: that they said; forked: answers that
    left a baseline's they were drafted from, and rejoined: those of them that came back to it for some tokens; checked:
    tokens said once more, plainly and alone, and otherwise: those of them that came out as others; parted: passes that
    were made in parts, for want of memory; drafting: passes in which drafts might be made, and rested: those of them in
    which none were, as they were not expected to pay, because: why, as found last; broken_drafts: that ended with
    logits that are no numbers, so that the target went on alone. peak: the most bytes that its
    process held in any job, libraries and whatever else it had loaded among them, device_peak: of its GPU; 0: unknown.
    windows: what its server counted of drafts, and uncounted: why it did not, of a job at least; "" of our own engine.
    drawing: what the log-probs that a server tells of drawn tokens say against its drawing them at all, see
    `stats.greedy_sampler`; () where nothing does. answered_by: the names by which its replies say who answered, each
    with the number of replies, marked as above. asked_whole: why a server was asked for whole answers though its arm
    is streamed, "" where it was not.
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
        """Of both; what was run by two engines says so."""
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


UNTOLD = Generation()  # of arms that nobody ran, and of files


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFootprint:
    """Measured sizes of one loaded arm."""

    bytes_on_disk: int  # of its weight files
    bytes_in_memory: int  # parameters and packed buffers after loading
    quantized_bytes: int  # packed codes and scales alone, 0 for the baseline
    effective_bits: float  # 8 * bytes_in_memory / number of weights
    facts: dict[str, float] = field(default_factory=dict)  # see `ArmEvidence.facts`
    unmeasured: dict[str, str] = field(default_factory=dict)  # likewise
    # Tensors of its files that have no say in its answers, by name with * for each number: how many. Heads that predict
    # more than the next token, vision, buffers that are computed anew, scales of a quantized cache.
    left_out: dict[str, int] = field(default_factory=dict)
    overflow: tuple[Overflow, ...] = ()  # of all its answers, in the order of the forward pass
    generation: Generation = UNTOLD  # likewise
    probes: tuple[Probe, ...] = ()  # of a served arm: what its server showed before its first case
    spent: Spent | None = None  # likewise: what all requests to its server came to; None: not counted
