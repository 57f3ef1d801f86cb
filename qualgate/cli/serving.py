"""`serve`: our own engine behind OpenAI's API, for tests and demos of arms that are served."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.stdout import say
from qualgate.errors import UsageError
from qualgate.errors.extras import needs


def serve(
    model: Annotated[str, typer.Argument(help="a model folder, quantized or not, or `reference`")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="on 127.0.0.1; 0 takes a free one")] = 8000,
    name: Annotated[str, typer.Option("--name", help="under which it is listed; the folder's where left out")] = "",
    dtype: Annotated[str, typer.Option("--dtype", help="as in a gate file")] = "bfloat16",
) -> None:
    """Answer OpenAI's API on this machine by qualgate's own engine: for tests and demos, not for users."""
    import importlib.util

    if any(importlib.util.find_spec(one) is None for one in ("starlette", "uvicorn")):
        raise UsageError(needs("`qualgate serve`", "serve"))
    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(f"--dtype {dtype}: bfloat16, float16 or float32")
    import tempfile

    from qualgate.engine.device import choose_device
    from qualgate.engine.load import load_arm
    from qualgate.records import ArmSpec
    from qualgate.refmodel import PATH
    from qualgate.served.server.app import serve as answer

    folder = PATH if model == "reference" else Path(model).expanduser().absolute()
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            why = error.strerror
            raise UsageError(f"port {port} on this machine cannot be had ({why}); give another --port") from None
        with tempfile.TemporaryDirectory() as cache:
            spec = ArmSpec(name="served", model=str(folder), dtype=dtype)  # type: ignore[arg-type]  # checked above
            arm = load_arm(spec, cache, {}, device=choose_device("auto"))
        listed = name or ("reference" if folder == PATH else folder.name)
        say(f"serving {listed} at http://127.0.0.1:{listening.getsockname()[1]}/v1   (Ctrl-C ends it)")
        answer(arm, listed, listening)
