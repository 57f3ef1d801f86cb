"""Running one arm: loading it, rendering prompts, generating, and measuring drift on the baseline's tokens."""
