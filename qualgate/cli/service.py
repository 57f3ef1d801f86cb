"""Open the dashboard, check the installation and its store: `dashboard`, `doctor`."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from qualgate.cli.arguments import JsonOption, OptionalGateFile, StoreOption, store_url, store_url_of
from qualgate.cli.stdout import say
from qualgate.errors import Exit, UsageError
from qualgate.errors.extras import needs

LoginOption = Annotated[
    Path | None,
    typer.Option("--login", help="TOML file with the section [auth] of an OIDC provider: people sign in"),
]
ProxyOption = Annotated[
    Path | None,
    typer.Option("--proxy", help="TOML file with the section [proxy] of a trusted proxy: people sign in there"),
]


def dashboard(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="port to listen on")] = 8501,
    address: Annotated[
        str,
        typer.Option("--address", help="address to listen on; with 0.0.0.0 anyone who reaches this machine can sign"),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host",
            metavar="NAME",
            help="host name under which a proxy or container reaches the dashboard; may be repeated",
        ),
    ] = None,
    login: LoginOption = None,
    proxy: ProxyOption = None,
    base_path: Annotated[
        str,
        typer.Option(
            "--base-path", metavar="PATH", help="path under which a proxy serves the dashboard, such as /qualgate"
        ),
    ] = "",
) -> None:
    """Open the reviewers' dashboard on this machine: runs, queue, flips, approve and block."""
    import importlib.util
    import signal
    import subprocess

    from qualgate.store.database import open_store
    from qualgate.store.signing.keys import trusted_keys

    if importlib.util.find_spec("streamlit") is None:
        raise UsageError(needs("the dashboard", "dashboard"))
    hosts, base_path = [_host_name(name) for name in allow_host or ()], _base_path(base_path)
    url, people_by = store_url_of(gate_file, store), _signing_in(login, proxy)
    _check_free(address, port)
    trusted_keys()  # a key that cannot be read is named now, not on a page
    open_store(url, create=False).close()  # refuses a missing, older or newer store, as `runs` does
    url_host = f"[{address}]" if ":" in address else address
    say(f"dashboard: http://{url_host}:{port}{base_path and f'/{base_path}'}   (stop it with Ctrl-C)")
    if address not in ("127.0.0.1", "localhost", "::1"):
        here = [] if address in ("0.0.0.0", "::") else [address]
        names = ", ".join(dict.fromkeys(["localhost", "127.0.0.1", *here, *hosts]))
        whoever = "people with a role" if people_by else f"anyone who reaches {url_host}"
        say(f"{whoever} can sign. It answers only to these names: {names} (--allow-host adds one)")
    command = [sys.executable, "-m", "qualgate_app.serve", str(port), address, base_path, *hosts]
    # The server ends when its stdin closes, which happens however this process ends.
    environment = {**os.environ, "QUALGATE_STORE": url, "QUALGATE_LOGIN": "", "QUALGATE_PROXY": "", **people_by}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as served:
        signal.signal(signal.SIGTERM, lambda *_: served.terminate())
        try:
            code = served.wait()
        except KeyboardInterrupt:
            code = 0
        code = 0 if code == -signal.SIGTERM else code
    raise typer.Exit(Exit.APPROVE if code == 0 else Exit.INFRASTRUCTURE)


def _signing_in(login: Path | None, proxy: Path | None) -> dict[str, str]:
    """Return the variable that tells the server how people sign in; {} if nobody does. UsageError for two ways, and for
    a file without settings."""
    if login is not None and proxy is not None:
        raise UsageError("--login and --proxy are two ways to sign in; give one.")
    if proxy is not None:
        from qualgate_app.proxy import read_proxy

        read_proxy(proxy)
        return {"QUALGATE_PROXY": str(proxy.absolute())}
    return {} if login is None else {"QUALGATE_LOGIN": _login(login)}


def _login(file: Path) -> str:
    """Return the absolute path of the login provider's settings; UsageError for a file without them."""
    try:
        section = tomllib.loads(file.read_text(encoding="utf-8")).get("auth")
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read as TOML ({error}).") from None
    needed = ("redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url")
    lacking = [name for name in needed if not (isinstance(section, dict) and section.get(name))]
    if lacking:
        raise UsageError(f"{file}: the section [auth] lacks {', '.join(lacking)}.")
    return str(file.absolute())


def _host_name(value: str) -> str:
    """Return the host of --allow-host in lower case, without brackets or a last dot. UsageError if it is none."""
    name = value.strip("[]").rstrip(".").lower()
    if not re.fullmatch(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f:.]+:[0-9a-f:.]*", name):
        raise UsageError(
            f"--allow-host {value!r:.80}: write a host's name or address alone, without https://, port or *, such as "
            "--allow-host reviews.example.org"
        )
    return name


def _base_path(value: str) -> str:
    path = value.strip("/")
    if not re.fullmatch(r"([A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*)?", path) or {".", ".."} & {*path.split("/")}:
        hint = "write the path of an address alone, such as --base-path /qualgate"
        raise UsageError(f"--base-path {value!r:.80}: {hint}")
    return path


def _check_free(address: str, port: int) -> None:
    """Raise UsageError if nothing can listen at this address and port."""
    import socket

    try:
        family, kind, _, _, socket_address = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(socket_address)
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise UsageError(f"port {port} on this machine is taken ({error.strerror}); give another --port") from None
        raise UsageError(
            f"--address {address!r:.80}: nothing can listen there ({error}). It is an address of this machine, or "
            "0.0.0.0 for all"
        ) from None


def doctor(
    gate_file: OptionalGateFile = None,
    service: Annotated[
        bool,
        typer.Option(
            "--service", help="check a store, its disks and its cluster instead; exits with 13 if a run would stop"
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what is ready on this machine, what is optional and missing, and what stops a run: then it exits with 13."""
    from qualgate.cli.doctor import as_text, findings, stops_a_run
    from qualgate.report.screen import fit
    from qualgate.served.engines import PROFILES, profile_lines

    if service:
        _look_at_service(gate_file, store, as_json)
    if gate_file is not None or store is not None:
        raise UsageError("a gate file and --store go with --service; this machine is looked at without them.")
    checks = findings()
    if as_json:
        engines = [{"what": f"engine {engine.name}", "state": "ready", "detail": asdict(engine)} for engine in PROFILES]
        say(json.dumps([*map(asdict, checks), *engines], indent=2))
    else:
        say(fit(as_text(checks)))
        say("\nWhat servers offer whose arms you judge, by their documentation (`engine:` names one):")
        for line in profile_lines():
            say(fit(line))
    raise typer.Exit(Exit.INFRASTRUCTURE if stops_a_run(checks) else Exit.APPROVE)


def _look_at_service(gate_file: Path | None, store: str | None, as_json: bool) -> NoReturn:
    """Print the findings on the store, its disk and the cluster, and exit: 13 if one of them stops a run."""
    from qualgate.cli.doctor import as_text, stops_a_run
    from qualgate.cli.doctor_service import service_findings
    from qualgate.config import load_gate_file
    from qualgate.report.screen import fit

    gate = load_gate_file(gate_file, files=False) if gate_file is not None else None
    checks = service_findings(store_url(gate.store_url if gate else None, store), gate)
    say(json.dumps([asdict(finding) for finding in checks], indent=2) if as_json else fit(as_text(checks)))
    raise typer.Exit(Exit.INFRASTRUCTURE if stops_a_run(checks) else Exit.APPROVE)
