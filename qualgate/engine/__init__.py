"""Run one arm: load it, render prompts, generate, and measure drift on the baseline's tokens."""
