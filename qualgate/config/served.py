"""The server of an arm in a gate file: an address, or a command that starts a server."""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from qualgate.config import keys
from qualgate.config.budget import BudgetEntry, PriceEntry, as_patience, as_price
from qualgate.config.listed_name import listed_name
from qualgate.config.paths import SHIPPED_MODEL, TokenizerPath, expanded
from qualgate.documents import ABSENT, Written, quote, stated
from qualgate.records import Served
from qualgate.records.served import CONCURRENCY
from qualgate.refmodel import PATH as SHIPPED_MODEL_FOLDER

KEY_NAME = "^[A-Z][A-Z0-9_]{0,63}$"
_HEADER = "^[A-Za-z0-9-]{1,64}$"
_OURS = (
    "model", "messages", "prompt", "tools", "stream", "stream_options", "max_tokens", "max_completion_tokens", "seed",
    "stop", "n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "response_format", "return_token_ids", "logprobs", "prompt_logprobs",
)  # fmt: skip
_OUTSIDE = (
    "quantize", "dtype", "kv_cache", "adapter", "speculation", "calibration", "quantized", "read_as", "allow_config",
    "another_model",
)  # fmt: skip
_WITH = (
    "engine", "answered_by", "tokenizer", "api_key_env", "concurrency", "requests_per_minute", "price", "stream",
    "parameters", "passing", "prompt_logprobs", "extra_body", "extra_headers", "extra_query", "list_models",
    "trust_env",
)  # fmt: skip
Name = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,59}$")]  # of a parameter of requests
READ_BY = ("vllm", "sglang")  # engines that tell a prompt's log-probs in a form that is read

# For the editor's schema: keys that exclude each other, as `ServedKeys` refuses them.
IN_PROCESS: Any = {"properties": dict.fromkeys(("endpoint", "serve", *_WITH), False)}
SERVED: Any = [
    {
        "required": [this, "model"] if this == "endpoint" else [this],
        "properties": dict.fromkeys((other, *_OUTSIDE), False),
        "dependencies": {
            "prompt_logprobs": {"required": ["tokenizer"], "properties": {"engine": {"enum": list(READ_BY)}}}
        },
    }
    for this, other in (("endpoint", "serve"), ("serve", "endpoint"))
]


def environment_name(name: str) -> str:
    """Check the name of an environment variable. The fault (a ValueError) does not show it: it may be a key."""
    if not re.fullmatch(KEY_NAME, name):
        raise stated("`api_key_env` must be the NAME of an environment variable; a key itself must not stand in a file")
    return name


def named_address(address: str) -> str:
    """The address without a trailing slash. A fault (a ValueError) for what is no API's address."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, None
    if parts is None or parts.scheme not in ("http", "https") or not host or any(c.isspace() for c in address):
        raise stated(f"`endpoint` is the API's address, such as http://127.0.0.1:8000/v1; found {quote(address)}")
    if parts.username or parts.password:  # not repeated
        raise stated("`endpoint` holds a user or a password; write `api_key_env: NAME` for a key")
    if parts.query or parts.fragment:
        raise stated(
            "`endpoint` ends with a query or a fragment (`?…`, `#…`): write a query as `extra_query: {api-version: "
            "…}`, and other fields of a request as `extra_body`"
        )
    return address.rstrip("/")


def server_at(endpoint: str | None) -> tuple[object, ...]:
    """(scheme, host, port, path) of an address, equal for other spellings of the same host."""
    parts = urlsplit(endpoint or "")
    here = "127.0.0.1" if parts.hostname in ("localhost", "::1") else parts.hostname
    return parts.scheme, here, parts.port or {"http": 80, "https": 443}.get(parts.scheme), parts.path


def _command(command: str) -> str:
    """Check a `serve` command: it takes a {port}, and passes no key."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise stated(f"`serve` cannot be read as a command ({error}); write quotes as in a shell") from None
    if not words or not any("{port}" in word for word in words):
        raise stated("`serve` needs {port} in place of the server's port: vllm serve ./support --port {port}")
    if flag := keys.in_command(words):  # its value is not repeated
        raise stated(
            f"`serve` gives its server a key ({quote(flag)}): leave it out, because a gate file is stored and shown. "
            "The server that a run starts listens on this machine only, and inherits this environment's variables"
        )
    return command


def _body(body: dict[str, Any]) -> dict[str, Any]:
    """Check `extra_body`: no key that qualgate sets itself, no secret, nothing that JSON lacks."""
    if own_keys := [name for name in body if name in _OURS]:
        raise stated(
            f"`extra_body` must not hold `{own_keys[0]}`: qualgate sets it from `model`, `generation` and the cases"
        )
    if key_name := keys.in_body(body):
        raise stated(f"`extra_body` has {quote(key_name)}: keys must not stand in a file; write `api_key_env: NAME`")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError):
        raise stated("`extra_body` holds a value that JSON cannot, such as a date; quote it") from None
    return body


def _headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if keys.in_header(name, value):
            raise stated(f"`extra_headers` has {quote(name)}: keys must not stand in a file; write `api_key_env: NAME`")
        if not re.search(_HEADER, name) or not value.isascii() or not value.isprintable():
            raise stated(f"`extra_headers` has {quote(name)}, whose name or value is not valid in a header")
    return headers


def _statuses(statuses: list[int]) -> list[int]:
    if not statuses or any(not 400 <= status <= 599 for status in statuses):
        raise stated("`passing` lists HTTP statuses from 400 to 599, such as [404, 525]")
    return statuses


def _query(query: dict[str, str]) -> dict[str, str]:
    for name, value in query.items():
        if keys.in_header(name, value) or keys.in_body({name: value}):
            raise stated(f"`extra_query` has {quote(name)}: keys must not stand in a file; write `api_key_env: NAME`")
        if not name or not (name + value).isprintable():
            raise stated(f"`extra_query` has {quote(name)}, whose name or value is not valid in an address")
    return query


def _as_text(value: Any) -> Any:
    """Turn dates and numbers back into text: YAML reads a version such as 2024-10-21 as a date."""
    return f"{value}" if isinstance(value, date) or (isinstance(value, int) and value is not True) else value


def _listed(k: int) -> int:
    if k < -1 or k == 0:
        raise stated("`prompt_logprobs` is how many likeliest tokens are listed at each position, from 1; -1 is all")
    return k


class AskedKeys(Written):
    """Keys of whatever is asked over the wire."""

    endpoint: Annotated[
        str, AfterValidator(named_address), Field(json_schema_extra={"pattern": r"^https?://[^@?#\s]+$"})
    ] = ABSENT
    """The address of an OpenAI-compatible API that answers for this arm, with its version. `model` is then the name
    that it lists. Example: `endpoint: http://127.0.0.1:8000/v1`
    """
    api_key_env: Annotated[str, AfterValidator(environment_name), Field(json_schema_extra={"pattern": KEY_NAME})] = (
        ABSENT
    )
    """The name of the environment variable that holds the server's key. Example: `api_key_env: SUPPORT_KEY`"""
    parameters: Annotated[
        dict[Literal["max_tokens", "temperature", "top_p", "seed", "stop", "stream_options", "logprobs"], Name],
        Field(min_length=1),
    ] = ABSENT
    """What the server calls otherwise, or refuses: a new name, or `omit`. An arm that leaves out `temperature`, `top_p`
    or `seed` is compared only with one that does so too. Example: `parameters: {max_tokens: max_completion_tokens,
    temperature: omit}`
    """
    concurrency: Annotated[int, Field(ge=1, le=4096)] = ABSENT
    """Requests that the server is asked at once at most, 16 unless you say so; `workers.count` processes share them,
    and each asks up to 64. Example: `concurrency: 64`
    """
    extra_body: Annotated[
        dict[str, Any],
        AfterValidator(_body),
        Field(json_schema_extra={"propertyNames": {"not": {"enum": list(_OURS)}}}),
    ] = ABSENT
    """What every request says beside what qualgate says. Example: `extra_body: {chat_template_kwargs: {enable_thinking:
    false}}`
    """
    extra_headers: Annotated[
        dict[str, str],
        AfterValidator(_headers),
        Field(json_schema_extra={"propertyNames": {"pattern": _HEADER, "not": {"pattern": keys.IN_HEADER}}}),
    ] = ABSENT
    """Headers of every request, none with a key. Example: `extra_headers: {X-Team: support}`"""
    extra_query: Annotated[
        dict[str, Annotated[str, BeforeValidator(_as_text)]],
        AfterValidator(_query),
        Field(json_schema_extra={"propertyNames": {"not": {"pattern": keys.IN_HEADER}}}),
    ] = ABSENT
    """What the address of every request ends with, as Azure's version of its API. Example: `extra_query: {api-version:
    "2024-10-21"}`
    """
    list_models: bool = ABSENT
    """`false` for a server that lists no models (`/models`), or lists `*` in place of their names: `model` is then not
    looked up, and a misspelt one shows in the first answer. Example: `list_models: false`
    """
    trust_env: bool = ABSENT
    """`true` sends requests through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` names, but for hosts in
    `NO_PROXY`; else no proxy is used. Example: `trust_env: true`
    """


class ServedKeys(AskedKeys):
    """Keys of an arm that a server answers for."""

    serve: Annotated[str, AfterValidator(_command), Field(json_schema_extra={"pattern": "\\{port\\}"})] = ABSENT
    """A command that starts such a server, with {port} where it takes its port: started from the gate file's folder
    for this arm's answers, ended after them. `model` may be left out where the command names it, as those of vLLM
    and SGLang do. Example: `serve: vllm serve ./support-awq --port {port}`
    """
    engine: Annotated[str, Field(min_length=1, max_length=60)] = ABSENT
    """What serves, by your word; `vllm` and `sglang` are asked for the tokens of their answers, and one that is not
    named is too. Example: `engine: vllm`
    """
    tokenizer: TokenizerPath = ABSENT
    """The folder whose tokenizer and chat template make this arm's tokens, which are then what the server is sent;
    without it the server is sent messages. Example: `tokenizer: ./models/support`
    """
    requests_per_minute: Annotated[float, Field(ge=1, le=1_000_000)] = ABSENT
    """Questions that the server is asked in a minute at most, evenly apart; `workers.count` processes share them. Left
    out, as many as it takes. Example: `requests_per_minute: 600`
    """
    price: PriceEntry = ABSENT
    """Of its tokens, by the million; left out, as `budget` says. Example: `price: {prompt: 0.15, answer: 0.6}`"""
    stream: bool = ABSENT
    """`false` asks for whole answers, of servers that cannot stream. Example: `stream: false`"""
    passing: Annotated[
        list[int],
        AfterValidator(_statuses),
        Field(json_schema_extra={"minItems": 1, "items": {"type": "integer", "minimum": 400, "maximum": 599}}),
    ] = ABSENT
    """HTTP statuses that may pass, so that what is answered so is asked again, beside 408, 409, 425, 429, 499, 500,
    502, 503, 504, 520 to 524, 529 and 530. Example: `passing: [404, 525]`
    """
    answered_by: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1)] = ABSENT
    """Names of models that may answer in place of `model`, as replies call them, where they call several. Example:
    `answered_by: [gpt-4o-2024-08-06, gpt-4o-2024-11-20]`
    """
    prompt_logprobs: Annotated[
        int, AfterValidator(_listed), Field(json_schema_extra={"minimum": -1, "not": {"const": 0}})
    ] = ABSENT
    """How many of the likeliest tokens the server is to list at each place of the baseline's answers, -1 for all: what
    this arm's drift is read from, and its own answer up to where it leaves the baseline's. For servers that tell
    `prompt_logprobs` as vLLM does and SGLang (`engine: sglang`), and arms with a `tokenizer`. Example:
    `prompt_logprobs: 20`
    """

    @property
    def is_served(self) -> bool:
        """Whether a server answers for the arm."""
        return self.endpoint is not None or self.serve is not None

    @model_validator(mode="before")
    @classmethod
    def _listed_as_its_command_says(cls, value: Any) -> Any:
        if isinstance(value, dict) and "model" not in value and isinstance(value.get("serve"), str):
            name = listed_name(value["serve"])
            return {**value, "model": name} if name else value
        return value

    @model_validator(mode="after")
    def _served_or_not(self) -> ServedKeys:
        """Check that the keys of a served arm, and of one that is generated here, are not mixed."""
        given = [name for name in _WITH if name in self.model_fields_set]
        if not self.is_served:
            if given:
                raise stated(f"`{given[0]}` goes with `endpoint` or `serve`: this arm is generated here")
            return self
        if self.endpoint is not None and self.serve is not None:
            raise stated("an arm has either `endpoint` (a server that runs) or `serve` (a server to start), not both")
        if getattr(self, "model", None) is None:
            raise stated(
                "`endpoint` and `serve` need `model`: the name under which the server lists it (/v1/models). It may "
                "be left out where a `serve` command of vLLM, SGLang or qualgate names its model"
            )
        if self.prompt_logprobs is not None:
            self._check_reading()
        if wrong := [name for name in _OUTSIDE if name in self.model_fields_set]:
            raise stated(f"`{wrong[0]}` is for arms that are generated here; leave it out, and set it at the server")
        return self

    def _check_reading(self) -> None:
        """Check that `prompt_logprobs` can be read: with a tokenizer, and from an engine that gives them."""
        if self.tokenizer is None:
            raise stated("`prompt_logprobs` needs `tokenizer`, to split the baseline's answer into tokens")
        if self.engine is not None and self.engine not in READ_BY:
            raise stated(
                "`prompt_logprobs` can be read from vLLM (`engine: vllm`, or no `engine`) and SGLang; "
                f"{quote(self.engine)} is not in this version"
            )
        if self.engine == "sglang" and self.prompt_logprobs < 1:
            raise stated("SGLang cannot list the whole vocabulary: give a number, as in `prompt_logprobs: 20`")


def as_served(entry: ServedKeys, folder: Path, budget: BudgetEntry | None = None) -> Served | None:
    """The server as a record; None if our own engine generates. folder: the gate file's. budget: supplies a price to
    arms without one."""
    if not entry.is_served:
        return None
    return replace(
        as_asked(entry),
        command=entry.serve or "",
        engine=entry.engine or "",
        answered_by=tuple(entry.answered_by or ()),
        tokenizer=_tokenizer(entry.tokenizer, folder),
        stream=entry.stream is not False,
        prompt_logprobs=entry.prompt_logprobs or 0,
        drafts=getattr(entry, "arm", None) in ("speculation", "both"),
        requests_per_minute=entry.requests_per_minute or 0.0,
        price=as_price(entry.price, budget),
        passing=tuple(entry.passing or ()),
        patience=as_patience(budget),
    )


def as_asked(entry: AskedKeys) -> Served:
    """The record of a server that is asked for texts."""
    headers: dict[str, str] = entry.extra_headers or {}
    return Served(
        endpoint=entry.endpoint or "",
        api_key_env=entry.api_key_env or "",
        concurrency=entry.concurrency or CONCURRENCY,
        extra_body=json.dumps(entry.extra_body, sort_keys=True) if entry.extra_body else "",
        extra_headers=tuple(sorted(headers.items())),
        parameters=tuple(sorted((entry.parameters or {}).items())),
        extra_query=tuple(sorted((entry.extra_query or {}).items())),
        list_models=entry.list_models is not False,
        trust_env=entry.trust_env is True,
    )


def _tokenizer(named: str | None, folder: Path) -> str:
    if not named:
        return ""
    return str(SHIPPED_MODEL_FOLDER) if named == SHIPPED_MODEL else os.path.normpath(folder / expanded(named))
