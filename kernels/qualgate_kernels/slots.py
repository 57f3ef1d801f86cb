"""The size of a block of keys and values. Needs no torch: who counts blocks has no tensors."""

SLOTS = 16  # positions of a block
