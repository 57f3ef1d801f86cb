"""Why a plan refuses a folder: the same checks for one folder alone."""

from __future__ import annotations

from pathlib import Path

from qualgate.engine.check_weights import check_weights
from qualgate.errors import UsageError
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec


def refusal(path: Path) -> str:
    """Return why a plan or a run refuses the folder as a variant; "" if neither does."""
    try:
        folder = read_model_folder(path, hashed=False)
        _ = folder.tokenizer_sha256, folder.template_sha256, folder.stop_ids
        check_weights(ArmSpec(name=path.name, model=str(path)), folder)
    except UsageError as error:  # NotInThisVersion is one
        return str(error)
    return ""
