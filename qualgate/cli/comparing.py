"""`compare`: a first look at two servers, without a gate file."""

from __future__ import annotations

import json
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, NoReturn
from urllib.parse import urlsplit

import typer

from qualgate.cli.arguments import JsonOption
from qualgate.cli.judging import LimitOption, run_and_show
from qualgate.cli.stdout import say
from qualgate.errors import Exit, UsageError

if TYPE_CHECKING:
    from qualgate.pipeline.first_look import Address


def compare(
    url_a: Annotated[str, typer.Argument(metavar="URL_A", help="an OpenAI-compatible API: http://127.0.0.1:8000/v1")],
    url_b: Annotated[str, typer.Argument(metavar="URL_B", help="the API to compare with it")],
    evalset: Annotated[
        list[str] | None,
        typer.Option(
            "--evalset",
            help="a shipped set's name, or a path to one of yours; may be repeated; not needed with `--tokens`",
        ),
    ] = None,
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
    tokens: Annotated[
        int | None,
        typer.Option(
            "--tokens",
            metavar="N",
            help="instead of scoring, sample both servers within N tokens, prompts included, and state whether their "
            "answers differ and what difference would have been found",
        ),
    ] = None,
    alpha: Annotated[
        float, typer.Option("--alpha", help="with `--tokens`: how often two equal servers may be called different")
    ] = 0.05,
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
    if tokens is not None:
        if limit is not None:
            raise UsageError("--limit counts scored cases, and --tokens scores none. Remove one of the two.")
        _state(address_a, address_b, evalset or [], tokens, alpha, out, as_json)
    if not evalset:
        raise UsageError("--evalset NAME says what is asked and scored; --tokens N compares answers without it.")
    gate_file = out / "compare.yaml"
    write_atomically(gate_file, look_file(address_a, address_b, evalset, Path.cwd()))
    run_and_show(gate_file, as_first_look(load_gate_file(gate_file), limit), as_json)


def _state(a: Address, b: Address, sets: list[str], tokens: int, alpha: float, out: Path, as_json: bool) -> NoReturn:
    """Ask both servers within so many tokens, print the statement, write it to `out`, and exit."""
    from qualgate.pipeline.endpoint_statement import state
    from qualgate.pipeline.endpoints import ask_endpoints, chosen_prompts
    from qualgate.report.endpoints import endpoints_body, print_endpoints
    from qualgate.report.progress import shown_progress
    from qualgate.report.render import write_atomically

    if not 0.01 <= alpha < 0.5:
        raise UsageError(f"--alpha {alpha:g}: give a number from 0.01 to below 0.5.")
    prompts = chosen_prompts(sets, Path.cwd(), tokens)
    with shown_progress() as progress:
        asked = ask_endpoints(a, b, prompts, tokens, progress, token_hex(8))
        progress("planting differences in these answers, to see which would be found", 0, 0)
        statement = state(asked, alpha)
    body = json.dumps(endpoints_body(asked, statement), indent=2, allow_nan=False)
    if as_json:
        say(body)
    else:
        print_endpoints(asked, statement)
    write_atomically(out / "statement.json", body + "\n")
    raise typer.Exit(Exit.UNDECIDED)


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
