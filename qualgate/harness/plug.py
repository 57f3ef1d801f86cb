"""Register the model for `lm_eval --model qualgate`.

lm-eval 0.4.13 has a closed table of models and no entry points. But it loads torch before it makes a model, and torch
calls the entry points of the group `torch.backends`.

Does nothing if lm-eval is not loaded. Must never fail, or torch would not load.
"""

from __future__ import annotations

import sys


def register() -> None:
    """Add `qualgate` to lm-eval's models by name; the model's module is imported on first use."""
    if "lm_eval" not in sys.modules:
        return
    try:
        from lm_eval.api.registry import model_registry

        if "qualgate" not in model_registry:
            model_registry.register("qualgate", target="qualgate.harness.model:QualgateLM")
    except Exception:  # another version of lm-eval: `python -m qualgate.harness` reports the fault
        return
