"""Copies of the shipped model's folder with edited files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from qualgate import refmodel

GENERATION, CONFIG, TOKENIZER = "generation_config.json", "config.json", "tokenizer_config.json"
TEMPLATE = (refmodel.PATH / "chat_template.jinja").read_text()
OTHER = "{% for message in messages %}{{ message.content }}{% endfor %}"


def edited(folder: Path, edits: dict[str, Any]) -> Path:
    """The model in `folder`, its weights a link. edits: file → keys that are changed (None takes one out), a text that
    is its content, or None for no such file."""
    folder.mkdir(parents=True)
    for file in refmodel.PATH.iterdir():
        if file.suffix == ".safetensors":
            (folder / file.name).symlink_to(file)
        elif file.suffix in (".json", ".jinja"):
            (folder / file.name).write_bytes(file.read_bytes())
    for name, edit in edits.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        if edit is None:
            file.unlink()
        elif isinstance(edit, str):
            file.write_text(edit)
        else:
            whole = (json.loads(file.read_text()) if file.is_file() else {}) | edit
            file.write_text(json.dumps({key: value for key, value in whole.items() if value is not None}))
    return folder
