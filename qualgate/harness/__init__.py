"""lm-eval, both ways: its tasks judged here, and our engine as a model there. lm-eval itself is loaded when needed."""
