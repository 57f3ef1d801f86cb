"""The engine of padded batches, for models without packed passes: transformers' own attention with a mask."""
