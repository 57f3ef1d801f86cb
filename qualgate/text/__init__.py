"""Text for people: numbers as words, hostile characters made visible."""
