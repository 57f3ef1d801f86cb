"""What a forked worker finds done already: imported once, by the server that forks it (`tests.command_line`)."""

from __future__ import annotations

import gc

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("llama")  # compiles some nine hundred patterns, which each worker would do for itself

# A worker looks for garbage before it loads its second model, among all libraries if it may: a fifth of a test's time.
gc.collect()
gc.freeze()
gc.unfreeze = lambda: None
