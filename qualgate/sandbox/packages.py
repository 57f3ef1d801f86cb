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
    """Packages that cannot be installed here; the reason names one. No program's fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """Packages installed for a list of requirements on this machine."""

    folder: str  # that programs import from
    requested: tuple[str, ...]  # "numpy==2.3.4": of the required packages, by name
    versions: tuple[str, ...]  # and of their dependencies
    sha256: str  # of names and bytes of all files but what pip notes of them

    @property
    def identity(self) -> str:
        """Identity for scores: the versions of required packages, and the beginning of the hash over all."""
        return f"{MARK}{','.join(self.requested)}:{self.sha256[:12]}"


def fault(requirement: object) -> str | None:
    """Return why this is no valid requirement (a name, with or without versions); None if it is."""
    if not isinstance(requirement, str) or len(requirement) > 200 or not _REQUIREMENT.fullmatch(requirement.strip()):
        return "is no package's name, with versions or without, as `numpy` or `numpy>=2.2,<2.5`"
    return None


def name_of(requirement: str) -> str:
    """Return the package's name as indexes write it: lower case, with hyphens."""
    match = _REQUIREMENT.fullmatch(requirement.strip())
    return re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""


@functools.cache
def _of_this_process(requirements: tuple[str, ...], sandbox: Sandbox) -> Sandbox | NoPackages:
    """Install packages and try them; return the sandbox with them, or the failure. Remembered for this process."""
    try:
        packages = installed(requirements)
        equipped = replace(sandbox, packages=packages.folder)
        _try(requirements, equipped)
    except NoPackages as error:
        return error
    return equipped


def equipped(sandbox: Sandbox, requirements: Iterable[str]) -> tuple[Sandbox, Packages]:
    """Return `sandbox` with these packages, each imported in it once. NoPackages if one cannot be installed."""
    wanted = tuple(sorted(requirements))
    with_packages = _of_this_process(wanted, sandbox)
    if isinstance(with_packages, NoPackages):
        raise with_packages
    return with_packages, installed(wanted)


@functools.cache
def installed(requirements: tuple[str, ...]) -> Packages:
    """Return the packages of these requirements, installed if need be. NoPackages if that fails."""
    if wrong := next((requirement for requirement in requirements if fault(requirement)), None):
        raise NoPackages(f"{wrong!r} {fault(wrong)}")
    about = [sorted(requirement.replace(" ", "") for requirement in requirements), sys.implementation.cache_tag]
    key = hashlib.sha256(json.dumps([*about, sysconfig.get_platform()]).encode()).hexdigest()[:32]
    folder = _cache() / key
    try:
        if not (folder / _LOCK).is_file():
            _install(requirements, folder)
        lock = json.loads((folder / _LOCK).read_text(encoding="utf-8"))
        content, all_files = _hashes(folder / _SITE)
        if (content, all_files) != (lock["sha256"], lock["whole"]):
            raise NoPackages(f"{folder} was changed since it was installed: remove it, and it is made again")
        versions, names = tuple(lock["versions"]), set(map(name_of, requirements))
        requested = tuple(version for version in versions if version.partition("==")[0] in names)
        return Packages(folder=str(folder / _SITE), requested=requested, versions=versions, sha256=content)
    except NoPackages:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NoPackages(f"{folder} cannot be used ({error}): remove it, and it is made again") from None


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qualgate" / "packages"


def _install(requirements: Sequence[str], folder: Path) -> None:
    """Install packages in a new folder, which then takes the place of `folder`. NoPackages if pip fails."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    new_folder = Path(tempfile.mkdtemp(prefix="new-", dir=folder.parent))
    try:
        site = new_folder / _SITE
        site.mkdir()
        _pip(requirements, site)
        shutil.rmtree(site / "bin", ignore_errors=True)  # they start this very interpreter, which is in no sandbox
        _python("-m", "compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", str(site))
        _make_readable(new_folder)
        versions = sorted({_version(distribution) for distribution in metadata.distributions(path=[str(site)])})
        content, all_files = _hashes(site)
        lock = {"requirements": sorted(requirements), "versions": versions, "sha256": content, "whole": all_files}
        (new_folder / _LOCK).write_text(json.dumps(lock, indent=1), encoding="utf-8")
        if folder.exists() and not (folder / _LOCK).is_file():
            shutil.rmtree(folder)
        try:
            new_folder.rename(folder)
        except OSError:
            if not (folder / _LOCK).is_file():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(new_folder, ignore_errors=True)


def _pip(requirements: Sequence[str], site: Path) -> None:
    """Install wheels by pip in `site`. NoPackages, with pip's last error, if that fails."""
    command = ["-m", "pip", "install", "--only-binary", ":all:", "--target", str(site), "--no-compile", "--no-input"]
    process = _python(*command, "--disable-pip-version-check", "--", *requirements)
    if process.returncode == 0:
        return
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["pip said nothing"]
    why = _ADDRESS.sub("…", errors[-1].removeprefix("ERROR:").strip())[:300]
    raise NoPackages(f"pip installs no wheels of {', '.join(requirements)} here: {why}")


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with these arguments, and return how it ended. NoPackages if that takes too long."""
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


def _version(distribution: metadata.Distribution) -> str:
    return f"{name_of(distribution.metadata['Name'])}=={re.sub(r'[^A-Za-z0-9.+!]', '_', distribution.version)}"


def _make_readable(folder: Path) -> None:
    """Make files readable for every user that a sandbox may run as."""
    for path, _, names in os.walk(folder):
        os.chmod(path, 0o755)
        for name in names:
            os.chmod(os.path.join(path, name), 0o644)


def _hashes(site: Path) -> tuple[str, str]:
    """Return the hash of the published files, without pip's notes and bytecode, and that of every file."""
    content, all_files = hashlib.sha256(), hashlib.sha256()
    for path in sorted(_files(site)):
        name = path.relative_to(site)
        line = f"{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode()
        all_files.update(line)
        if not name.parts[0].endswith(".dist-info") and "__pycache__" not in name.parts:
            content.update(line)
    return content.hexdigest(), all_files.hexdigest()


def _files(site: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(site):
        for name in (*names, *(folder for folder in folders if os.path.islink(os.path.join(parent, folder)))):
            path = Path(parent, name)
            if path.is_symlink():
                raise NoPackages(f"{path} is a link: no wheel holds one")
            yield path


def _try(requirements: Sequence[str], sandbox: Sandbox) -> None:
    """Import each requirement's modules in the sandbox.

    NoPackages if none of them can be imported, since every program would fail then.
    """
    distributions = {
        name_of(wheel.metadata["Name"]): wheel for wheel in metadata.distributions(path=[sandbox.packages])
    }
    for requirement in requirements:
        distribution = distributions.get(name_of(requirement))
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
