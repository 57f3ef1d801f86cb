"""Features of each serving engine over the wire: one table, which `qualgate doctor` prints.

By their documentation and source; of these, Ollama's and TensorRT-LLM's were not run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Where an engine counts its drafts, as Prometheus text: the path, and each count's name without `_total`; "": it
    does not count that. by_place: has a label `position`."""

    path: str = "/metrics"
    verifications: str = ""
    proposed: str = ""
    accepted: str = ""
    by_place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """An engine by the name that `engine:` gives it.

    serve: how one is started. token_ids: whether it takes them as a prompt and tells those of its answers.
    prompt_logprobs, cancel: how it tells the log-probs of a prompt, and what ends an answer under way; "": not known.
    per_answer: what makes it tell each answer's drafts; "": nothing does. counters: None where it has none. loads:
    whether it loads whatever model it is asked for, so that what it lists is not all. version_at: where its host tells
    its version.
    """

    name: str
    serve: str
    token_ids: bool = False
    prompt_logprobs: str = ""
    cancel: str = "closing the connection"
    per_answer: str = ""
    counters: Counters | None = None
    counters_by: str = ""  # the flag that turns the counters on; "": they are always there
    loads: bool = False
    version_at: str = "/version"


def _as_vllm_names(prefix: str) -> Counters:
    return Counters(
        verifications=f"{prefix}spec_decode_num_drafts",
        proposed=f"{prefix}spec_decode_num_draft_tokens",
        accepted=f"{prefix}spec_decode_num_accepted_tokens",
        by_place=f"{prefix}spec_decode_num_accepted_tokens_per_pos",
    )


PROFILES = (
    EngineProfile(
        name="vllm", serve="vllm serve MODEL --port {port}", token_ids=True, prompt_logprobs="prompt_logprobs",
        per_answer="--per-request-spec-decode-metrics summary", counters=_as_vllm_names("vllm:"),
    ),
    EngineProfile(
        name="sglang", serve="python -m sglang.launch_server --model-path MODEL --port {port}",
        token_ids=True, prompt_logprobs="/generate with logprob_start_len", counters_by="--enable-metrics",
        counters=Counters(verifications="sglang:spec_verify_calls"),
        version_at="/v1/loads?include=core",  # /server_info tells it too, beside the server's keys
    ),
    EngineProfile(
        name="trtllm", serve="trtllm-serve MODEL --port {port}", cancel="",
        counters=Counters(path="/prometheus/metrics", proposed="trtllm_spec_decode_num_draft_tokens",
                          accepted="trtllm_spec_decode_num_accepted_tokens"),
        counters_by="return_perf_metrics: true",
    ),
    EngineProfile(
        name="llamacpp", serve="llama-server -m FILE.gguf --port {port}", per_answer="always, where it drafts",
        counters=_as_vllm_names("llamacpp:"), counters_by="--metrics",
    ),
    EngineProfile(name="ollama", serve="ollama serve"),
    EngineProfile(name="transformers", serve="transformers serve --port {port}", cancel="", loads=True),
)  # fmt: skip


def tells_tokens(engine: str) -> bool:
    """Whether an engine may be asked for its answers' token ids: it is known to tell them, or is not named."""
    return not engine or any(one.token_ids for one in PROFILES if one.name == engine)


def loads_what_it_is_asked(engine: str) -> bool:
    """Whether it serves models that it does not list."""
    return any(one.loads for one in PROFILES if one.name == engine)


def version_at(engine: str) -> str:
    """Where its host tells its version."""
    return next((one.version_at for one in PROFILES if one.name == engine), "/version")


def counters_of(engine: str) -> tuple[Counters, ...]:
    """Where to look for counts of drafts: of the engine that is named, or of all where none, or an unknown one, is."""
    known = [one for one in PROFILES if one.name == engine]
    return tuple(one.counters for one in known or PROFILES if one.counters is not None)


def profile_lines() -> list[str]:
    """The table as aligned lines, its heads first."""
    rows = [("engine", "token ids", "prompt log-probs", "counts drafts", "drafts by answer", "an answer is ended by")]
    for one in PROFILES:
        counts = "no" if one.counters is None else f"yes, by {one.counters_by}" if one.counters_by else "yes"
        ids = "yes" if one.token_ids else "no"
        rows.append((one.name, ids, one.prompt_logprobs or "no", counts, one.per_answer or "no", one.cancel or "?"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
