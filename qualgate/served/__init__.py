"""Arms that are served: asked over OpenAI's API, at an address or at a server that is started here."""
