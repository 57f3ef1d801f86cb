"""A virtual environment for each library: made on request from a requirements file of its own, found again later.

Its folder is finished when it holds `qualgate-backend.json`: the requirements it was made from, and the versions that
came of them. Without that file, or with other requirements, it is made again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

from qualgate.errors import InfrastructureError, UsageError

NAMES = ("gptqmodel", "llmcompressor", "auto-gptq", "autoawq")
LEGACY_PYTHON = (3, 11)  # the newest Python that auto-gptq has wheels for
_FINISHED = "qualgate-backend.json"
_VERSIONS_OF = ("torch", "transformers", "gptqmodel", "llmcompressor", "compressed-tensors", "auto-gptq", "autoawq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An interpreter that has one library, and in which versions."""

    name: str
    python: Path
    versions: dict[str, str]  # of the packages that decide what comes out
    folder: Path | None = None  # where it was looked for, when that is not the default place


def default_folder() -> Path:
    """Where environments lie when nothing else is said: the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "qualgate" / "backends"


def find(name: str, folder: Path | None = None) -> Environment:
    """Return the environment of backend `name`. UsageError says how to make it when it is missing or out of date."""
    _check_name(name)
    place = (folder or default_folder()) / name
    how = _how(name, folder)
    try:
        noted = json.loads((place / _FINISHED).read_bytes())
        requirements, versions = noted["requirements"], dict(noted["versions"])
    except FileNotFoundError:
        state = "is not finished" if place.is_dir() else "does not exist"
        raise UsageError(f"The environment of backend {name} ({place}) {state}. {how}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{place / _FINISHED} cannot be read ({error}). {how}") from None
    if requirements != requirements_hash(name):
        raise UsageError(f"The environment of backend {name} ({place}) has the packages of another version. {how}")
    python = _python(place)
    if not python.exists():
        raise UsageError(f"The environment of backend {name} lost its interpreter {python}. {how}")
    return Environment(name=name, python=python, versions=versions, folder=folder)


def how_to_make(environment: Environment) -> str:
    """The command that makes it anew, as a sentence."""
    return _how(environment.name, environment.folder)


def _how(name: str, folder: Path | None) -> str:
    return f"Make it with: qualgate quantize --setup-backend {name}" + (f" --backend-dir {folder}" if folder else "")


def set_up(name: str, folder: Path | None = None, say: Callable[[str], None] = lambda line: None) -> Environment:
    """Make the environment of backend `name`, unless it is there already and whole. Downloads one to two gigabytes.

    pip runs with the user's own configuration, so it takes packages, and the build of torch, from where they say.
    """
    _check_name(name)
    place = (folder or default_folder()) / name
    try:
        environment = find(name, folder)
        if _versions(environment.python) == environment.versions:
            say(f"{name}: ready in {place}")
            return environment
        say(f"{name}: {place} no longer has the packages it was made with")
    except UsageError:
        pass  # missing or out of date: it is made below
    except (OSError, ValueError, subprocess.CalledProcessError):
        say(f"{name}: the interpreter in {place} does not run")
    if name == "auto-gptq" and sys.version_info[:2] > LEGACY_PYTHON:
        raise UsageError(
            f"auto-gptq's last release has wheels up to Python {'.'.join(map(str, LEGACY_PYTHON))}, but this is "
            f"{sys.version_info.major}.{sys.version_info.minor}. Run qualgate under an older one, or use gptqmodel, "
            "its successor."
        )
    if place.exists():
        shutil.rmtree(place)
    say(f"{name}: making {place}")
    venv.create(place, with_pip=True, symlinks=os.name != "nt")
    python = _python(place)
    requirements, without_dependencies = _requirements(name)
    say(f"{name}: installing {', '.join(_lines(requirements))}")
    _pip(name, python, ["--requirement", str(requirements)], say)
    if without_dependencies.exists():
        say(f"{name}: installing {', '.join(_lines(without_dependencies))} without its dependencies")
        _pip(name, python, ["--no-deps", "--no-build-isolation", "--requirement", str(without_dependencies)], say)
    noted = {"name": name, "requirements": requirements_hash(name), "versions": _versions(python)}
    unfinished = place / f".{_FINISHED}"
    unfinished.write_text(json.dumps(noted, indent=2), encoding="utf-8")
    os.replace(unfinished, place / _FINISHED)
    say(f"{name}: ready, {', '.join(f'{package} {version}' for package, version in noted['versions'].items())}")
    return find(name, folder)


def requirements_hash(name: str) -> str:
    """Return the hash of what an environment is made from; comments count, so no change goes unseen."""
    return sha256(b"\0".join(path.read_bytes() for path in _requirements(name) if path.exists())).hexdigest()


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise UsageError(f"unknown backend {name!r}; known: {', '.join(NAMES)}")


def _requirements(name: str) -> tuple[Path, Path]:
    """What is installed with its dependencies, and what without; the second need not be there."""
    folder = Path(str(files("qualgate.quant.backends"))) / "requirements"
    return folder / f"{name}.txt", folder / f"{name}.alone.txt"


def _lines(requirements: Path) -> list[str]:
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _python(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _pip(name: str, python: Path, arguments: list[str], say: Callable[[str], None]) -> None:
    """Install; `say` gets a line for each package, as building some of them takes minutes."""
    quiet = ("--disable-pip-version-check", "--progress-bar", "off", "--no-compile")
    command = [str(python), "-m", "pip", "install", *quiet, *arguments]
    settings = {**_clean_environment(), "PYTHONUNBUFFERED": "1"}
    with (
        tempfile.TemporaryFile("w+", errors="replace") as faults,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=faults, encoding="utf-8", errors="replace", env=settings
        ) as pip,
    ):
        assert pip.stdout is not None
        try:
            for line in pip.stdout:
                if (words := line.split()) and words[0] in ("Collecting", "Building"):
                    say(f"{name}: {' '.join(words[:4])}")
        except BaseException:
            pip.kill()
            raise
        if pip.wait():
            faults.seek(0)
            tail = "\n".join(faults.read().strip().splitlines()[-8:])
            raise InfrastructureError(f"pip could not install backend {name}:\n{tail}\nRun the same command again.")


def _versions(python: Path) -> dict[str, str]:
    """Return the versions of Python and of the packages _VERSIONS_OF in an environment; packages it lacks are left
    out."""
    code = (
        "import json, sys\nfrom importlib.metadata import PackageNotFoundError, version\nfound = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        found[name] = version(name)\n    except PackageNotFoundError:\n        pass\n"
        "print(json.dumps({'python': sys.version.split()[0], **found}))"
    )
    done = subprocess.run([str(python), "-I", "-c", code, *_VERSIONS_OF], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _clean_environment() -> dict[str, str]:
    """Ours without what would lead another interpreter to our packages."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
