"""Features of each serving engine over the wire: one table, which `qualgate doctor` prints.

From their documentation and source; Ollama and TensorRT-LLM were not run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Where an engine counts its drafts, as Prometheus text: the path, and each counter's name without `_total`; "" if
    it has none. by_place: has a label `position`."""

    path: str = "/metrics"
    verifications: str = ""
    proposed: str = ""
    accepted: str = ""
    by_place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineProfile:
    """An engine by the name that `engine:` gives it.

    serve: how one is started. token_ids: whether it takes them as a prompt and returns those of its answers.
    prompt_logprobs, cancel: how it returns the log-probs of a prompt, and what ends an answer under way; "": unknown.
    per_answer: the option by which it reports each answer's drafts; "": none. counters: None if it has none. loads:
    whether it loads any requested model, so that its list is incomplete. version_at: the path of its version.
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
    """Return whether to request token ids of an engine's answers: it is known to return them, or is not named."""
    return not engine or any(profile.token_ids for profile in PROFILES if profile.name == engine)


def loads_what_it_is_asked(engine: str) -> bool:
    """Return whether an engine serves models that it does not list."""
    return any(profile.loads for profile in PROFILES if profile.name == engine)


def version_at(engine: str) -> str:
    """Return the path at which an engine's host reports its version."""
    return next((profile.version_at for profile in PROFILES if profile.name == engine), "/version")


def counters_of(engine: str) -> tuple[Counters, ...]:
    """Return where to look for counts of drafts: of the named engine, or of all if it is unknown."""
    known = [profile for profile in PROFILES if profile.name == engine]
    return tuple(profile.counters for profile in known or PROFILES if profile.counters is not None)


def profile_lines() -> list[str]:
    """Return the table as aligned lines, its header first."""
    rows = [("engine", "token ids", "prompt log-probs", "counts drafts", "drafts by answer", "an answer is ended by")]
    for engine in PROFILES:
        drafts = "no" if engine.counters is None else f"yes, by {engine.counters_by}" if engine.counters_by else "yes"
        ids = "yes" if engine.token_ids else "no"
        rows.append(
            (engine.name, ids, engine.prompt_logprobs or "no", drafts, engine.per_answer or "no", engine.cancel or "?")
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
