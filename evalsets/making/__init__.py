"""How the shipped evalsets are written: in a checkout alone, for a wheel carries what was written."""
