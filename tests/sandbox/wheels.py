"""Wheels and source packages made on the spot, for a pip that is told to look nowhere else."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, files: dict[str, str], version: str = "1.0", needs: str = "") -> None:
    """NAME-VERSION-py3-none-any.whl of these files; needs: another package."""
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    held = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    held[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in (*held, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as made:
        for path, text in held.items():
            made.writestr(zipfile.ZipInfo(path), text)


def source(folder: Path, name: str, setup: str) -> None:
    """NAME-1.0.tar.gz, whose setup.py is `setup`."""
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as made:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        for path, text in (("setup.py", setup), ("PKG-INFO", about)):
            held = tarfile.TarInfo(f"{name}-1.0/{path}")
            held.size = len(text)
            made.addfile(held, io.BytesIO(text.encode()))
