"""Paths in a gate file: relative to it, with `~`, and never addresses.

Validators take the gate file's folder from "folder" in the validation context; without one they look for no file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from qualgate.documents import planned, quote, stated
from qualgate.errors.misplaced import nearest_path, no_model_folder
from qualgate.store import address

SHIPPED_MODEL = "reference"
LONGEST_PATH = 4096  # bytes; Linux takes no more


def expanded(path: str) -> Path:
    """`path` with `~` and `~name` expanded. A fault for what cannot be a path."""
    if "\0" in path or len(path.encode("utf-8", "replace")) > LONGEST_PATH:
        raise stated(f"{quote(path)} cannot be a path: it holds a NUL character or more than {LONGEST_PATH} bytes")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise stated(f"{quote(path)}: the home folder of that user is unknown; write the full path") from None


def _model_folder(model: str, info: ValidationInfo) -> str:
    """Check a `model`: a folder or the shipped model, or, for a served arm, any name that its server lists.

    info: has the fields before it, and the gate file's folder. If `endpoint` or `serve` is itself faulty, the name is
    not checked.
    """
    if not model:
        raise stated(f"`model` is empty; write a folder, or `{SHIPPED_MODEL}` for the shipped one")
    known = info.data or {}
    served = known.get("endpoint") or known.get("serve")
    if "://" in model or (not served and re.fullmatch(r"[\w.-]+:\d{1,5}(/.*)?", model)):
        raise stated(f"`model` is a folder, not an address ({quote(model)}): get a model of the Hub by `hf download`; "
                     "write a server as `endpoint`: {endpoint: http://127.0.0.1:8000/v1, model: NAME}")  # fmt: skip
    if served:  # the server's own name for it
        return model
    if ("endpoint" in known) != ("serve" in known):  # the other key has a fault of its own; a server names the model
        return model
    return _folder(model, info)


def _folder(model: str, info: ValidationInfo) -> str:
    """Check that a model's folder exists, if files are checked; return the text as written.

    Without a context nothing is checked. A plain word that is no folder is refused even where files are not checked: it
    is a misspelt name.
    """
    if info.context is None or model == SHIPPED_MODEL:
        return model
    folder: Path = info.context["folder"] / expanded(model)
    is_folder = os.path.isdir(folder)  # Path.is_dir raises for a name that is too long or may not be looked at
    if "/" not in model and not is_folder:
        raise stated(
            f"no model called {quote(model)}; the shipped model is `{SHIPPED_MODEL}`, and a folder is written as "
            f"./{model}; {no_model_folder(model, folder)}"
        )
    if info.context["files"] and not is_folder:
        raise stated(no_model_folder(model, folder))
    return model


def _adapter_folder(path: str, info: ValidationInfo) -> str:
    """Check that an adapter's folder exists, if files are checked; return the text as written."""
    if not path:
        raise stated("`adapter` is empty; write a folder that PEFT saved, such as ./support-lora")
    if "://" in path:
        raise planned(f"an adapter at an address ({quote(path)})")
    expanded(path)
    if info.context and info.context["files"]:
        folder = info.context["folder"] / expanded(path)
        if not os.path.isdir(folder):
            raise stated(f"no adapter folder {quote(str(folder), 200)}{nearest_path(folder)}")
    return path


def _plain_file(path: str, info: ValidationInfo) -> str:
    """Check that a file exists, if files are checked; return the text as written."""
    if not path:
        raise stated("the file name is empty")
    if "://" in path:
        raise planned(f"a file at an address ({quote(path)})")
    expanded(path)
    if info.context and info.context["files"] and not os.path.isfile(info.context["folder"] / expanded(path)):
        file = info.context["folder"] / expanded(path)
        raise stated(f"no file {quote(str(file), 200)}{nearest_path(file)}")
    return path


def _store_url(url: str) -> str:
    """Check the address of a store: PostgreSQL, or a plain SQLite file."""
    scheme, _, location = url.partition("://")
    if address.is_postgresql(url):
        if wrong := address.fault(url):
            raise stated(wrong)
        return url
    if scheme != "sqlite" or not location.startswith("/") or location.endswith("/"):
        raise stated(
            "the store must be sqlite:///FILE (relative to the gate file), sqlite:////FOLDER/FILE or "
            "postgresql://USER@HOST/DATABASE"
        )
    if "?" in location or ":memory:" in location:
        raise stated("the store must be a plain file, without `?` or :memory:, so that a verdict outlives its run")
    expanded(location[1:])
    return url


_NOT_AN_ADDRESS = Field(json_schema_extra={"minLength": 1, "not": {"pattern": "://"}})
ModelPath = Annotated[str, AfterValidator(_model_folder), _NOT_AN_ADDRESS]
AdapterPath = Annotated[str, AfterValidator(_adapter_folder), _NOT_AN_ADDRESS]
TokenizerPath = Annotated[str, AfterValidator(_folder), _NOT_AN_ADDRESS]
PlainFile = Annotated[str, AfterValidator(_plain_file), _NOT_AN_ADDRESS]
_STORE = rf"^(sqlite:///(?!.*:memory:)[^?]*[^?/]|{address.POSTGRESQL})$"
StoreUrl = Annotated[str, AfterValidator(_store_url), Field(json_schema_extra={"pattern": _STORE})]
