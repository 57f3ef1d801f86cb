"""Read evidence from files of other programs, without generation and without a store."""
