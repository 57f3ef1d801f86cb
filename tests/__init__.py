"""The tests, by the rooms they test; `house` measures the code, `verification` holds the proofs."""
