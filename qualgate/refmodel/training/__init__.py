"""How the reference model was trained, and what it answers: in a checkout alone, for a wheel carries its weights."""
