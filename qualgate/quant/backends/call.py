"""Start `inside` in a backend's interpreter, hand it the order, pass on its progress, take the folder it leaves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import IO

from qualgate.errors import Exit, InfrastructureError, Interrupted, UsageError
from qualgate.quant.backends.environment import Environment, how_to_make
from qualgate.quant.backends.job import BackendJob
from qualgate.quant.model_files import PROCESSOR_TEMPLATE_FILE, TEMPLATE_FILE, TOKENIZER_FILES, read_files

# Files of the baseline that a library may drop or write in its own version's manner: its tokenizer is the model's.
TOKENIZER = (*TOKENIZER_FILES, TEMPLATE_FILE, PROCESSOR_TEMPLATE_FILE, "generation_config.json")
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "GPTQMODEL_CPU_WORKERS": "2",  # gptqmodel asks its pool for 2 workers and dies on machines that give it 1
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a backend left in `folder`."""

    folder: Path
    backend: str
    versions: dict[str, str]
    patches: tuple[str, ...]  # what had to be changed in the library for it to run here


def run_backend(
    environment: Environment,
    job: BackendJob,
    progress: Callable[[str], None] = lambda line: None,
    finish: Callable[[Made], None] = lambda made: None,
) -> Made:
    """Let the library make `job.out`; the folder appears whole, in one rename. InfrastructureError says how it died.

    finish: may read and add to the folder before it appears; it gets the folder under its unfinished name.
    Ctrl-C and SIGTERM end the library too and leave nothing behind: Interrupted.
    """
    out = Path(job.out)
    check_free(out)
    with _interruptible(job.backend):
        return _run(environment, job, out, progress, finish)


def check_free(out: Path) -> None:
    """Raise UsageError if a folder of that name exists already."""
    if out.exists():
        raise UsageError(f"{out} already exists. Give another --out, or remove this one.")


def _run(
    environment: Environment,
    job: BackendJob,
    out: Path,
    progress: Callable[[str], None],
    finish: Callable[[Made], None],
) -> Made:
    """Run the library in a hidden folder beside `out`, and rename the result to `out` when it is whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        unfinished = room / "made"
        answer = _listen(environment, replace(job, out=str(unfinished)), room, progress)
        if not any(unfinished.glob("*.safetensors")):
            raise InfrastructureError(f"{job.backend} reported success, but wrote no safetensors file.")
        for name, raw in read_files(Path(job.model), TOKENIZER).raw.items():
            (unfinished / name).parent.mkdir(exist_ok=True)
            (unfinished / name).write_bytes(raw)
        result = Made(
            folder=unfinished,
            backend=job.backend,
            versions=environment.versions,
            patches=tuple(answer.get("patches", ())),
        )
        finish(result)
        os.rename(unfinished, out)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return replace(result, folder=out)


def _listen(environment: Environment, job: BackendJob, room: Path, progress: Callable[[str], None]) -> dict:
    """Run the script and return its last answer, passing its progress on.

    Its standard output is one JSON object a line; what libraries print goes to a file, of which an error shows the
    end.
    """
    script = Path(str(files("qualgate.quant.backends"))) / "inside.py"
    order, log = room / "order.json", room / "log.txt"
    order.write_text(json.dumps(job.as_json()), encoding="utf-8")
    answer: dict = {}
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    # -I: neither the user's packages nor the script's folder come before the library's own.
    command = [str(environment.python), "-I", str(script), str(order)]
    with log.open("wb") as noise, _started(environment, command, noise, room, {**inherited, **SETTINGS}) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                try:
                    answer = json.loads(line)
                except ValueError:
                    continue  # a library that writes to the real standard output all the same
                if "progress" in answer:
                    progress(f"{job.backend}: {answer['progress']}")
        except BaseException:
            process.kill()
            raise
    if "done" in answer:
        return answer["done"]
    if "refused" in answer:
        raise UsageError(f"{job.backend}: {answer['refused']}")
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-12:])
    reason = answer.get("error") or f"it ended with {process.returncode} and no word"
    if reason.startswith(("ModuleNotFoundError", "ImportError")):  # the order was never looked at
        reason += f"\nIts environment may be damaged. {how_to_make(environment)}"
    raise InfrastructureError(f"{job.backend} failed: {reason}\nIts last lines:\n{tail}")


def _started(
    environment: Environment, command: list[str], noise: IO[bytes], room: Path, settings: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start the script. UsageError if the interpreter does not start.

    Its standard input stays open as long as this process lives, so the script notices when nobody waits for it.
    """
    try:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=noise, cwd=room, env=settings
        )
    except OSError as error:
        raise UsageError(
            f"The interpreter of backend {environment.name} does not start ({environment.python}: {error.strerror}). "
            + how_to_make(environment)
        ) from None


@contextmanager
def _interruptible(backend: str) -> Iterator[None]:
    """Inside the block SIGTERM interrupts as Ctrl-C does, and either becomes Interrupted."""
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()  # no other may take signals
    previous = signal.signal(signal.SIGTERM, stop) if main else None
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"{backend} was stopped and nothing was written; run again to start over",
            Exit.TERMINATED if received else Exit.INTERRUPTED,
        ) from None
    finally:
        if main:
            signal.signal(signal.SIGTERM, previous)
