"""May a verdict rest on this evidence at all, and on which of it?"""
