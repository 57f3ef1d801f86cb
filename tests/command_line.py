"""The command line as tests call it.

`qualgate` calls it in this process: the same words and the same exit code, without a new interpreter's imports. Its
workers are processes of their own, forked from one that has imported torch already. `in_a_process` starts a process,
for what only a process has: an environment from its first line on, signals, what its workers write to stderr.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import qualgate as package
from qualgate.cli import main
from qualgate.workers import pool

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = str(Path(package.__file__).parent / "__main__.py")

# What a worker imports: the server does it once, its workers find it there.
multiprocessing.set_forkserver_preload(
    ["qualgate.engine.job", "qualgate.engine.load", "qualgate.served.job", "transformers.models.auto.modeling_auto",
     "transformers.models.llama.modeling_llama", "tests.forked"]
)  # fmt: skip


@contextlib.contextmanager
def forked_workers() -> Iterator[None]:
    """A pool forks its workers from that server, in place of spawning them."""
    with contextlib.chdir(ROOT):  # where it finds `tests`
        forkserver.ensure_running()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "START", "forkserver")
        yield


def qualgate(
    *arguments: str, cwd: Path | None = None, encoding: str = "utf-8", **variables: str
) -> subprocess.CompletedProcess[str]:
    """`python -m qualgate ARGUMENTS` in `cwd`, with these variables beside the environment's own. encoding: of stdout
    and stderr, as a locale would set it."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2))
    with contextlib.ExitStack() as entered:
        patch = entered.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(sys, "argv", [PROGRAM, *arguments])
        for name, value in variables.items():
            patch.setenv(name, value)
        entered.enter_context(forked_workers())
        entered.enter_context(contextlib.chdir(cwd or Path.cwd()))
        entered.enter_context(contextlib.redirect_stdout(out))
        entered.enter_context(contextlib.redirect_stderr(err))
        with pytest.raises(SystemExit) as ended:
            main()
    said, told = (stream.buffer.getvalue().decode(stream.encoding) for stream in (out, err))
    return subprocess.CompletedProcess(["qualgate", *arguments], int(ended.value.code or 0), said, told)


def in_a_process(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own, with spawned workers."""
    return subprocess.run(
        [sys.executable, "-m", "qualgate", *arguments], capture_output=True, encoding="utf-8", cwd=cwd, check=False,
        env={**os.environ, **variables},
    )  # fmt: skip
