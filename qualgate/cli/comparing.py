"""`compare`: a first look at two servers, without a gate file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from qualgate.cli.arguments import JsonOption
from qualgate.cli.judging import LimitOption, run_and_show
from qualgate.errors import UsageError


def compare(
    url_a: Annotated[str, typer.Argument(metavar="URL_A", help="an OpenAI-compatible API: http://127.0.0.1:8000/v1")],
    url_b: Annotated[str, typer.Argument(metavar="URL_B", help="the API to compare with it")],
    evalset: Annotated[
        list[str], typer.Option("--evalset", help="a shipped set's name, or a path to one of yours; may be repeated")
    ],
    model_a: Annotated[
        str, typer.Option("--model-a", help="name of the model at URL_A; by default the only one that it lists")
    ] = "",
    model_b: Annotated[
        str, typer.Option("--model-b", help="name of the model at URL_B; by default the only one that it lists")
    ] = "",
    api_key_env: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key-env", help="environment variable that holds the API key; give it twice for URL_A and URL_B"
        ),
    ] = None,
    limit: LimitOption = None,
    out: Annotated[Path, typer.Option("--out", help="folder for the store, the gate file and the reports")] = Path(
        "qualgate-compare"
    ),
    as_json: JsonOption = False,
) -> None:
    """Look at two servers without a gate file: both are asked and scored, and what differs is shown. Decides nothing:
    ends with 12, or with 13, 14 or 64, never with 0."""
    keys = _keys(api_key_env or [], url_a, url_b)
    from qualgate.config import load_gate_file
    from qualgate.pipeline.few_cases import as_first_look
    from qualgate.pipeline.first_look import Address, look_file
    from qualgate.report.render import write_atomically

    address_a = Address(url=url_a, model=model_a, key=keys[0])
    address_b = Address(url=url_b, model=model_b, key=keys[1])
    gate_file = out / "compare.yaml"
    write_atomically(gate_file, look_file(address_a, address_b, evalset, Path.cwd()))
    run_and_show(gate_file, as_first_look(load_gate_file(gate_file), limit), as_json)


def _keys(named: list[str], url_a: str, url_b: str) -> tuple[str, str]:
    """Return the name of the key's variable for each server. UsageError if one key would go to two hosts without the
    user's consent; the message repeats no name, which may be a key."""
    if len(named) > 2:
        raise UsageError(f"--api-key-env is given once, or twice: of URL_A, then of URL_B; found {len(named)}")
    if len(named) == 1 and _host(url_a) != _host(url_b):
        raise UsageError(
            "--api-key-env: one key would go to two hosts. Give it twice, of URL_A and then of URL_B; an empty name "
            "('') sends none."
        )
    first, last = (named or [""])[0], (named or [""])[-1]
    return first, last


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # not a URL; refused later, when it is used
        return None
