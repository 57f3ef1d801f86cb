"""`python -m qualgate.harness …`: lm-eval's command line with our model registered, independent of torch's plug-ins."""

from __future__ import annotations

import sys

from qualgate.errors.extras import needs


def main() -> None:
    """Run lm-eval's command with the model `qualgate` in its registry."""
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        sys.exit(f"qualgate: {needs('this command', 'harness')}")
    import qualgate.harness.model  # noqa: F401

    cli_evaluate()


main()
