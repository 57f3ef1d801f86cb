"""The shipped evalsets: seven generated families, their generators, and the files those wrote.

NAME.yaml and NAME.jsonl beside this file are what a run reads. In a checkout `python -m
qualgate_evalsets.making.generate` writes them.
"""
