"""Extras of the package, and the command that adds one to this installation.

No command names the package alone: `pip install 'qualgate[…]'` asks an index, where anybody may have taken the name.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Extra → (distribution that shows it is installed, what it provides).
EXTRAS: Mapping[str, tuple[str, str]] = {
    "dashboard": ("streamlit", "the pages for the person who signs: `qualgate dashboard`"),
    "harness": ("lm-eval", "lm-eval's tasks as evalsets, and IFEval's languages"),
    "intake": ("ijson", "results of other harnesses: `qualgate intake`"),
    "gguf": ("gguf", "variants in GGUF files"),
    "kernels": ("triton", "fused kernels and packed passes on a GPU"),
    "postgres": ("psycopg", "a store that several machines share"),
    "ray": ("ray", "workers on a cluster, `workers: {backend: ray}`, and runs handed to one: `qualgate submit`"),
    "signing": ("securesystemslib", "signed verdicts and decisions, attestations: `qualgate key`, `audit`, `attest`"),
    "service": ("prometheus-client", "metrics for Prometheus: `qualgate metrics`"),
    "otel": ("opentelemetry-sdk", "OpenTelemetry traces of runs"),
    "bfcl": ("tree-sitter", "Java and JavaScript calls judged as BFCL does"),
}  # fmt: skip


def installed_version(extra: str) -> str:
    """Return the version of the extra's distribution; "" if it is not installed."""
    try:
        return version(EXTRAS[extra][0])
    except PackageNotFoundError:
        return ""


def needs(what: str, extra: str) -> str:
    """Return the message that `what` needs the extra, with the command that adds it here."""
    return f"{what} needs {EXTRAS[extra][0]}. Install it: {install_command(extra)}"


def install_command(extra: str = "", *more: str) -> str:
    """Return the command that installs qualgate as it was installed here, with an extra; in words if that is unknown.
    more: options of pip."""
    if (origin := _origin()) is None:
        what = f"install the extra `{extra}`" if extra else "install it again"
        return f"{what} from where you installed qualgate" + (f" ({shlex.join(more)})" if more else "")
    options, before, after = origin
    return pip_install(*more, *options, f"{before}[{extra}]{after}" if extra else before + after)


def upgrade_advice() -> str:
    """Return how to bring a newer qualgate into this environment."""
    if (origin := _origin()) is None:
        return "install a newer one from where you installed qualgate"
    options, before, after = origin
    if before.endswith(".whl"):
        return pip_install(*options, "--upgrade", "NEWER.whl")
    if os.path.isabs(before):
        return f"update {before}, then: {install_command()}"
    return pip_install("--upgrade", before + re.sub(r"@[0-9a-f]+$", "", after))


def pip_install(*words: str) -> str:
    """Return the command that installs into the environment of this interpreter."""
    python = sys.executable
    pip = (python, "-m", "pip", "install") if find_spec("pip") else ("uv", "pip", "install", "--python", python)
    return shlex.join([*pip, *words])


def _origin() -> tuple[tuple[str, ...], str, str] | None:
    """Origin of this installation: (options of pip, requirement before and after the extra's brackets); None if
    unknown."""
    checkout = Path(__file__).resolve().parents[2]
    try:
        record = distribution("qualgate").read_text("direct_url.json")
    except PackageNotFoundError:
        record = None
    if record is None:  # run from a checkout, or installed from an index
        return _from_folder(checkout, editable=True) if (checkout / "pyproject.toml").is_file() else None
    try:
        origin = json.loads(record)
        if vcs := origin.get("vcs_info"):
            return (), "qualgate", f" @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
        place = urlsplit(origin["url"])
        path = unquote(place.path) if place.scheme == "file" else origin["url"]
        folder = origin.get("dir_info")
        if folder is None:
            return _constraint(*Path(path).parents[:2]), path, ""  # a wheel lies beside them, or in their `dist`
        return _from_folder(Path(path), editable=bool(folder.get("editable")))
    except (ValueError, KeyError, TypeError, AttributeError):  # not as installers write it
        return None


def _from_folder(folder: Path, *, editable: bool) -> tuple[tuple[str, ...], str, str]:
    return (*_constraint(folder), *(("--editable",) if editable else ())), str(folder), ""


def _constraint(*folders: Path) -> tuple[str, ...]:
    """Return pip's option for the pinned versions, if one of the folders has them."""
    pinned = next((file for folder in folders if (file := folder / "constraints.txt").is_file()), None)
    return () if pinned is None else ("--constraint", str(pinned))
