"""Contradictions of a model's folder with itself, its baseline, or the servers that read it.

`table` says how each server reads what a folder can say twice; each other module holds one kind of contradiction
against it. It is refused by name, or read the way that an arm's `read_as` names.
"""
