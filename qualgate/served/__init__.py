"""Served arms: requests over OpenAI's API, to an address or to a server that is started here."""
