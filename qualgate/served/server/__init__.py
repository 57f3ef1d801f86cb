"""Our own engine behind OpenAI's API, on this machine: for tests and demos of arms that are served, not for users."""
