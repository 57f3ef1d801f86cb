"""The engine of padded batches, for models that packed passes do not serve: transformers' own attention over a mask."""
