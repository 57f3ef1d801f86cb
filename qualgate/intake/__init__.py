"""Evidence from files that other programs wrote: nothing is generated, and nothing needs a store."""
