"""Keys, signed envelopes (DSSE), and attestations of model folders, checked without store or network."""
