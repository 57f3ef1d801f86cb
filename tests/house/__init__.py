"""The house measured: sizes, imports, functions and pages against their goals. `python -m tests.house` prints them."""
