"""`python -m qualgate.harness …`: lm-eval's own command line with our model registered, whatever torch does."""

from __future__ import annotations

import sys

from qualgate.errors.extras import needs


def main() -> None:
    """lm-eval's command, with the model `qualgate` in its registry."""
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        sys.exit(f"qualgate: {needs('this command', 'harness')}")
    import qualgate.harness.model  # noqa: F401

    cli_evaluate()


main()
