"""Give a model version of MLflow the alias `approved` if `qualgate verify` accepts its folder, else take it away.

    MLFLOW_TRACKING_URI=… python mlflow_alias.py NAME VERSION FOLDER --attestation … --policy … --key …

Tags of the version say what was found. It ends with the exit code of `verify`.
"""

from __future__ import annotations

import json
import subprocess
import sys

from mlflow import MlflowClient

ALIAS = "approved"
TAGS = ("result", "run", "variant", "until")  # of what `verify --json` prints


def main(name: str, version: str, folder: str, *options: str) -> int:
    """Set alias and tags; return the exit code."""
    client = MlflowClient()
    checked = subprocess.run(
        ["qualgate", "verify", folder, *options, "--json"], capture_output=True, text=True, check=False
    )
    aliases = client.get_registered_model(name).aliases
    if checked.returncode != 0 and str(aliases.get(ALIAS)) == version:  # a store in a database gives numbers
        client.delete_registered_model_alias(name, ALIAS)  # first: whatever fails below, it is gone
    found = json.loads(checked.stdout) if checked.stdout else {"reasons": [checked.stderr]}
    for tag in TAGS:
        client.set_model_version_tag(name, version, f"qualgate.{tag}", str(found.get(tag, "")))
    reasons = "; ".join(found["reasons"])
    client.set_model_version_tag(name, version, "qualgate.refused", reasons[:1_000])
    if checked.returncode == 0:
        client.set_registered_model_alias(name, ALIAS, version)
    print(f"{name} {version}: {'approved' if checked.returncode == 0 else f'not approved: {reasons}'}")
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
