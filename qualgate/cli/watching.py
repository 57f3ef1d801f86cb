"""`metrics`: the state of a service for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from qualgate.cli.arguments import StoreOption, store_url
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.errors import InfrastructureError, QualgateError, UsageError
from qualgate.errors.extras import needs

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from qualgate.config.nightly import Nightly
    from qualgate.report.exposition import Exposition
    from qualgate.store.database import Store


def metrics(
    nightly_file: Annotated[
        Path | None,
        typer.Argument(metavar="[NIGHTLY.yaml]", help="nightly file, for its store and for nights that are late"),
    ] = None,
    store: StoreOption = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="serve the metrics on this port until stopped")
    ] = None,
    host: Annotated[str, typer.Option("--host", help="address to listen on with --port")] = "127.0.0.1",
    textfile: Annotated[
        Path | None,
        typer.Option("--textfile", help="write the metrics to this file, for node_exporter's textfile collector"),
    ] = None,
) -> None:
    """Show the state of a store and its nights as Prometheus reads it; on stdout without --port and --textfile."""
    if port is not None and textfile is not None:
        raise UsageError("--port serves until it is ended, --textfile writes once: take one of the two out.")
    from qualgate.report.exposition import Exposition

    try:
        from prometheus_client import CollectorRegistry, generate_latest, write_to_textfile
    except ImportError:
        raise UsageError(needs("`qualgate metrics`", "service")) from None
    from qualgate.config.nightly import load_nightly
    from qualgate.store.database import open_store
    from qualgate.store.queries.service import service_state

    nightly = load_nightly(nightly_file) if nightly_file is not None else None
    url = store_url(nightly.store_url if nightly else None, store)
    registry = CollectorRegistry(auto_describe=False)
    if textfile is not None:
        _write(textfile, url, nightly, lambda c: (registry.register(c), write_to_textfile(str(textfile), registry)))
        return
    with ExitStack() as closing:

        @cache  # an error is not cached: the next scrape tries again
        def read() -> Store:
            opened = closing.enter_context(open_store(url, create=False))
            return replace(opened, patience=0.0)  # scrapes time out after seconds, so fail at once

        def failed(error: QualgateError) -> None:
            if port is None:
                raise error
            tell(f"qualgate: {error}")

        registry.register(Exposition(lambda: service_state(read()), lambda: _overdue(nightly, read()), failed))
        if port is None:
            say(generate_latest(registry).decode(), nl=False)
        else:
            _serve(host, port, registry, read, failed)


def _serve(
    host: str,
    port: int,
    registry: CollectorRegistry,
    connect: Callable[[], Store],
    report_error: Callable[[QualgateError], None],
) -> None:
    """Serve metrics until interrupted, even while the store is unreachable; a wrong address fails at once.

    connect: opens the store; called once here to fail early where waiting would not help.
    """
    from prometheus_client import start_http_server

    try:
        connect()
    except InfrastructureError as error:
        report_error(error)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UsageError(f"{host}:{port} cannot be listened at ({error.strerror}); give another") from None
    tell(f"metrics: http://{host}:{server.server_port}/metrics   (stop it with Ctrl-C)")
    thread.join()


def _write(textfile: Path, url: str, nightly: Nightly | None, write: Callable[[Exposition], object]) -> None:
    """Write the text file. If the store cannot be read, an existing file is rewritten, or it would still say "up".

    write: registers the metrics and writes them to the file.
    """
    from qualgate.report.exposition import Exposition
    from qualgate.store.database import open_store
    from qualgate.store.queries.service import service_state

    errors: list[QualgateError] = []
    try:
        with open_store(url, create=False) as opened:
            store = replace(opened, patience=0.0)
            write(Exposition(lambda: service_state(store), lambda: _overdue(nightly, store), errors.append))
    except QualgateError as error:
        if textfile.exists():
            write(Exposition(partial(_raised, error), dict, errors.append))
        raise
    if errors:
        raise errors[0]


def _raised(error: QualgateError) -> NoReturn:
    """Raise the error in place of the store's state, so that the metrics say that it cannot be read."""
    raise error


def _overdue(nightly: Nightly | None, store: Store) -> Mapping[tuple[str, str], float]:
    from qualgate.pipeline.nights.items import overdue

    return {} if nightly is None else overdue(nightly, store, datetime.now(UTC))
