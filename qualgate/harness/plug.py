"""How `lm_eval --model qualgate` finds the model.

lm-eval 0.4.13 knows its own models by a closed table and looks for no entry points; but torch, which it loads before it
makes a model, calls those of the group `torch.backends`.

Costs nothing where lm-eval is not loaded. Must never fail: torch would not load.
"""

from __future__ import annotations

import sys


def register() -> None:
    """Add `qualgate` to lm-eval's models, by name alone; the model itself is loaded when asked for."""
    if "lm_eval" not in sys.modules:
        return
    try:
        from lm_eval.api.registry import model_registry

        if "qualgate" not in model_registry:
            model_registry.register("qualgate", target="qualgate.harness.model:QualgateLM")
    except Exception:  # another version of lm-eval: `python -m qualgate.harness` says what is wrong
        return
