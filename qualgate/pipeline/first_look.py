"""Compare two servers without a gate file: one is written whose margins decide nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from qualgate import evalsets
from qualgate.config.served import environment_name, named_address, server_at
from qualgate.errors import UsageError
from qualgate.records import Evalset, Served
from qualgate.served.declared import only_model

OTHER = "b"  # the arm beside the baseline
MARGIN = 0.02  # `max_drop` in the written file, for the user to change; the comparison itself uses no margin


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One of the two servers. model: "" for the only one that it lists; key: the NAME of an environment variable."""

    url: str
    model: str = ""
    key: str = ""


def look_file(a: Address, b: Address, sets: Sequence[str], folder: Path) -> str:
    """Return the gate file's text. folder: the one that evalset paths are relative to.
    Raises UsageError for an invalid address, a server with several models and no `--model-a` or `--model-b`, twice the
    same model, and faulty evalsets; InfrastructureError if a server does not answer."""
    loaded_sets = [evalsets.load(ref, folder) for ref in sets]
    arms, models = zip(*resolved(a, b), strict=True)
    lines = [
        "# Written by `qualgate compare`, which overwrites it. Copy it, set `max_drop` to the loss you accept, and",
        "# `qualgate run` the copy. Every key: docs/reference/gate-file.md",
        "version: 1",
        f"baseline: {_arm(arms[0], models[0], a.key)}",
        f"variants: {{{OTHER}: {_arm(arms[1], models[1], b.key)}}}",
        f"evalsets: [{', '.join(_scalar(_ref(ref, folder)) for ref in sets)}]",
        "gate:",
        "  rules:",
        *(f"    - {rule}" for rule in margins(loaded_sets)),
        "store: sqlite:///qualgate.db",
    ]
    return "\n".join(lines) + "\n"


def resolved(a: Address, b: Address) -> list[tuple[str, str]]:
    """Return URL and model of both. Errors as of `look_file`."""
    arms = [_checked(address) for address in (a, b)]
    models = [address.model or _only_model(address, option) for address, option in ((a, "--model-a"), (b, "--model-b"))]
    if (server_at(arms[0]), models[0]) == (server_at(arms[1]), models[1]):
        raise UsageError(
            f"URL_A and URL_B are the same model of the same server ({models[0]!r:.80} at {arms[0]}): they "
            "could differ by noise only. Give another address, or another model by --model-b."
        )
    return list(zip(arms, models, strict=True))


def _checked(address: Address) -> str:
    """Return the address's URL. Raises UsageError for an invalid one, and, without repeating it, for a key in place of
    a variable's name."""
    try:
        if address.key:
            environment_name(address.key)
        return named_address(address.url)
    except ValueError as error:
        raise UsageError(str(error)) from None


def margins(sets: Sequence[Evalset]) -> list[str]:
    """Return a rule for each metric of each set, in the gate file's YAML."""
    return [
        f"{{metric: {metric}, evalset: {_scalar(item.name)}, max_drop: {MARGIN:g}}}"
        for item in sets
        for metric in item.metrics
    ]


def _arm(url: str, model: str, key: str) -> str:
    entries: Mapping[str, str] = {"endpoint": url, "model": model, **({"api_key_env": key} if key else {})}
    return "{" + ", ".join(f"{name}: {_scalar(text)}" for name, text in entries.items()) + "}"


def _only_model(address: Address, option: str) -> str:
    """Ask the server for the only model that it lists. option: the command-line option that names a model, for the
    error of a server with several."""
    from qualgate.served.client import Client  # what asks no server need not wait for an HTTP library

    async def ask() -> str:
        async with Client(address.url, Served(endpoint=address.url, api_key_env=address.key), 1, tries=1) as client:
            return await only_model(client, address.url, option)

    return asyncio.run(ask())


def _ref(ref: str, folder: Path) -> str:
    """Return the reference with an absolute path, for a gate file in another folder."""
    return str((folder / Path(ref).expanduser()).absolute()) if evalsets.is_path(ref) else ref


def _scalar(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
