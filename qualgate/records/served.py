"""Served arms: an address, or a command that starts a server, and its probes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from qualgate.records.spending import Price

# Words of a serving command or its environment that make answers independent of the batch → name of the mode.
INVARIANT = {
    "VLLM_BATCH_INVARIANT=1": "vLLM's batch-invariant mode",
    "--enable-deterministic-inference": "SGLang's deterministic mode",
}
CONCURRENCY = 16  # requests at once, by default
PATIENCE = 600.0  # s of waiting for a rate-limiting server in a row, by default
# Environment variables that choose kernels or arithmetic of a started server.
NUMBERS_BY = ("VLLM_BATCH_INVARIANT", "VLLM_ATTENTION_BACKEND", "NVIDIA_TF32_OVERRIDE", "CUBLAS_WORKSPACE_CONFIG")


def invariant_mode(started: str) -> str:
    """The mode of `INVARIANT` in which a server was started, from `Served.started`: "vLLM's batch-invariant mode
    (VLLM_BATCH_INVARIANT=1)"; "" for none."""
    modes = [
        f"{mode} ({word})"
        for word, mode in INVARIANT.items()
        if word in started.split() and (word.startswith("--") or "vllm" in started)  # a variable tells vLLM alone
    ]
    return ", ".join(modes)


OMIT = "omit"
CACHE = "cache"  # probe: hash of the reply (see `Completion`) to a new question
WHO = "model"  # probe: names of models in replies
STREAM = "stream"  # probe: a streamed answer compared with the same answer whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Result of a fixed question to a server. fault: what is wrong, "" for nothing. values: numbers to compare with
    another arm's: tokens of fixed prompts, nats of a fixed text's tokens."""

    name: str
    asked: str
    saw: str
    fault: str = ""
    values: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """An arm's server, as the gate file names it. No key is in it: `api_key_env` names where one is found.

    endpoint: the API's address, up to and with its version ("http://127.0.0.1:8000/v1"), "" until a command's server
    listens. command: of `serve:`, with its {port}. tokenizer: a folder whose tokenizer and template make the tokens
    that are sent; "": the server makes them of messages. prompt_logprobs: of how many of the likeliest tokens
    its drift is read, -1: of all, 0: it is not. extra_body: a JSON object's text, "" where nothing is added.
    drafts: it is said to speculate (`arm: speculation` or `both`). requests_per_minute: at most, 0: as many as
    it takes. price: of its tokens, None: not said. weights: sha256 of the model folders here that the command names,
    as planned, "" of none.
    answered_by: names of models whose replies are this arm's, beside the one that is asked for. parameters: what a
    request calls otherwise than OpenAI's API, in pairs; OMIT: it leaves that out. passing: statuses that may pass,
    beside those of `retries`. patience: s that it is left alone for its limits, with no answer between. whole: why
    it is asked for whole answers though `stream` is set, "": it is not. extra_query: what every address ends with, in
    pairs. list_models: whether its model is looked up. trust_env: by the environment's proxy.
    """

    endpoint: str = ""
    command: str = ""
    engine: str = ""
    tokenizer: str = ""
    api_key_env: str = ""
    concurrency: int = CONCURRENCY
    stream: bool = True
    prompt_logprobs: int = 0
    extra_body: str = ""
    extra_headers: tuple[tuple[str, str], ...] = ()
    drafts: bool = False
    requests_per_minute: float = 0.0
    price: Price | None = None
    weights: str = ""
    answered_by: tuple[str, ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    passing: tuple[int, ...] = ()
    patience: float = PATIENCE
    whole: str = ""
    extra_query: tuple[tuple[str, str], ...] = ()
    list_models: bool = True
    trust_env: bool = False

    def started(self, environment: Mapping[str, str]) -> str:
        """How the server is started, for its identity: variables that change numbers, then the command; "" for a
        running server. environment: of this process, which a started server inherits."""
        set_here = [f"{name}={environment[name]}" for name in NUMBERS_BY if name in environment]
        return " ".join([*set_here, self.command]) if self.command else ""

    @property
    def label(self) -> str:
        """For people: "vllm (started)", "served at 127.0.0.1:8000"."""
        if self.command:
            return f"{self.engine or 'server'} (started)"
        host = self.endpoint.partition("://")[2].partition("/")[0]
        return f"{self.engine or 'served'} at {host}"


def who_answered(probes: Sequence[Probe]) -> tuple[str, ...]:
    """Names of the models that answered the probes, as far as the server gives them."""
    return next((tuple(probe.saw.split(", ")) for probe in probes if probe.name == WHO and probe.values), ())
