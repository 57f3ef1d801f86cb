"""Packages for programs in a sandbox: wheels, installed once for a list of requirements, hashed, and read-only inside.

pip resolves and installs them outside any sandbox, from the index this machine's pip is configured with; of wheels
alone, so that no line of theirs runs here. What came of it lies in the user's cache, under a name that follows from the
requirements and this interpreter: so one list means the same versions until that folder is removed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from qualgate.sandbox.probe import Sandbox
from qualgate.sandbox.process import Ended, SandboxFailed

_VERSION = r"\s*(?:===?|>=|<=|~=|!=|<|>)\s*[A-Za-z0-9][A-Za-z0-9.*+!-]*\s*"
_REQUIREMENT = re.compile(rf"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:{_VERSION}(?:,{_VERSION})*)?")
MARK = "packages:"  # how an identity begins
_SITE, _LOCK = "site", "lock.json"
_PATIENCE = 1800.0  # seconds for pip
_ADDRESS = re.compile(r"\b\w+://\S+")  # of an index: it may hold a password


class NoPackages(OSError):
    """They cannot be had here; the reason names the package. No program's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """What a list of requirements came to on this machine."""

    folder: str  # that programs import from
    asked: tuple[str, ...]  # "numpy==2.3.4": of what was asked for, by name
    versions: tuple[str, ...]  # and of what that needs
    sha256: str  # of names and bytes of all files but what pip notes of them

    @property
    def identity(self) -> str:
        """What scores name: the versions of what was asked for, and the beginning of the hash, which is of all."""
        return f"{MARK}{','.join(self.asked)}:{self.sha256[:12]}"


def fault(requirement: object) -> str | None:
    """Why this is no requirement that is read here; None where it is one: a name, with versions or without."""
    if not isinstance(requirement, str) or len(requirement) > 200 or not _REQUIREMENT.fullmatch(requirement.strip()):
        return "is no package's name, with versions or without, as `numpy` or `numpy>=2.2,<2.5`"
    return None


def name_of(requirement: str) -> str:
    """The package's name as indexes write it: lower case, with hyphens."""
    found = _REQUIREMENT.fullmatch(requirement.strip())
    return re.sub(r"[-_.]+", "-", found[1]).lower() if found else ""


@functools.cache
def _of_this_process(requirements: tuple[str, ...], sandbox: Sandbox) -> Sandbox | NoPackages:
    try:
        found = installed(requirements)
        equipped = replace(sandbox, packages=found.folder)
        _try(requirements, equipped)
    except NoPackages as error:
        return error
    return equipped


def equipped(sandbox: Sandbox, requirements: Iterable[str]) -> tuple[Sandbox, Packages]:
    """`sandbox` with these packages, each of which was imported in it once. NoPackages where one cannot be had."""
    wanted = tuple(sorted(requirements))
    found = _of_this_process(wanted, sandbox)
    if isinstance(found, NoPackages):
        raise found
    return found, installed(wanted)


@functools.cache
def installed(requirements: tuple[str, ...]) -> Packages:
    """What these requirements came to, installed where that was not done yet. NoPackages where it cannot be."""
    if wrong := next((one for one in requirements if fault(one)), None):
        raise NoPackages(f"{wrong!r} {fault(wrong)}")
    about = [sorted(one.replace(" ", "") for one in requirements), sys.implementation.cache_tag]
    key = hashlib.sha256(json.dumps([*about, sysconfig.get_platform()]).encode()).hexdigest()[:32]
    folder = _cache() / key
    try:
        if not (folder / _LOCK).is_file():
            _install(requirements, folder)
        lock = json.loads((folder / _LOCK).read_text(encoding="utf-8"))
        content, whole = _hashes(folder / _SITE)
        if (content, whole) != (lock["sha256"], lock["whole"]):
            raise NoPackages(f"{folder} was changed since it was installed: remove it, and it is made again")
        versions, names = tuple(lock["versions"]), set(map(name_of, requirements))
        asked = tuple(one for one in versions if one.partition("==")[0] in names)
        return Packages(folder=str(folder / _SITE), asked=asked, versions=versions, sha256=content)
    except NoPackages:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoPackages(f"{folder} cannot be used ({error}): remove it, and it is made again") from None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qualgate" / "packages"


def _install(requirements: Sequence[str], folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        site = made / _SITE
        site.mkdir()
        _pip(requirements, site)
        shutil.rmtree(site / "bin", ignore_errors=True)  # they start this very interpreter, which is in no sandbox
        _python("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", str(site))
        _make_readable(made)
        versions = sorted({_version(one) for one in metadata.distributions(path=[str(site)])})
        content, whole = _hashes(site)
        lock = {"requirements": sorted(requirements), "versions": versions, "sha256": content, "whole": whole}
        (made / _LOCK).write_text(json.dumps(lock, indent=1), encoding="utf-8")
        if folder.exists() and not (folder / _LOCK).is_file():
            shutil.rmtree(folder)
        try:
            made.rename(folder)
        except OSError:
            if not (folder / _LOCK).is_file():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _pip(requirements: Sequence[str], site: Path) -> None:
    command = ["-m", "pip", "install", "--only-binary", ":all:", "--target", str(site), "--no-compile", "--no-input"]
    ended = _python(*command, "--disable-pip-version-check", "--", *requirements)
    if ended.returncode == 0:
        return
    told = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    errors = [line for line in told if line.startswith("ERROR")] or told[-1:] or ["pip said nothing"]
    why = _ADDRESS.sub("…", errors[-1].removeprefix("ERROR:").strip())[:300]
    raise NoPackages(f"pip installs no wheels of {', '.join(requirements)} here: {why}")


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoPackages(f"pip did not end within {_PATIENCE:g} s") from None


def _version(one: metadata.Distribution) -> str:
    return f"{name_of(one.metadata['Name'])}=={re.sub(r'[^A-Za-z0-9.+!]', '_', one.version)}"


def _make_readable(folder: Path) -> None:
    """By whichever user a sandbox runs as."""
    for place, _, names in os.walk(folder):
        os.chmod(place, 0o755)
        for name in names:
            os.chmod(os.path.join(place, name), 0o644)


def _hashes(site: Path) -> tuple[str, str]:
    """Of what was published, without pip's notes and bytecode; and of every file there."""
    content, whole = hashlib.sha256(), hashlib.sha256()
    for path in sorted(_files(site)):
        name = path.relative_to(site)
        line = f"{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
        whole.update(line)
        if not name.parts[0].endswith(".dist-info") and "__pycache__" not in name.parts:
            content.update(line)
    return content.hexdigest(), whole.hexdigest()


def _files(site: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(site):
        for name in (*names, *(one for one in folders if os.path.islink(os.path.join(place, one)))):
            path = Path(place, name)
            if path.is_symlink():
                raise NoPackages(f"{path} is a link: no wheel holds one")
            yield path


def _try(requirements: Sequence[str], sandbox: Sandbox) -> None:
    """Import what each requirement is for, behind the wall: where that fails, it would fail every program."""
    found = {name_of(one.metadata["Name"]): one for one in metadata.distributions(path=[sandbox.packages])}
    for requirement in requirements:
        distribution = found.get(name_of(requirement))
        names = sorted(_modules(distribution)) if distribution else []
        failed = [f"nothing to import in {requirement}"]
        for name in names:
            if (why := _import(name, sandbox)) is None:
                break
            failed.append(f"import {name}: {why}")
        else:
            raise NoPackages(f"{requirement} is installed, and does not work in the sandbox: {failed[-1][:300]}")


def _modules(distribution: metadata.Distribution) -> set[str]:
    tops = {file.parts[0].partition(".")[0] for file in distribution.files or () if file.suffix in (".py", ".so")}
    return {name for name in tops if name.isidentifier() and not name.startswith("_")}


def _import(name: str, sandbox: Sandbox) -> str | None:
    try:
        with sandbox.program() as running:
            running.run(f"import {name}", "")
    except (Ended, SandboxFailed) as error:
        return str(error)
    return None
