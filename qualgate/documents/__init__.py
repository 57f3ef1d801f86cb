"""Read files written by people: YAML with the line of every value, and faults that name file and line."""

from qualgate.documents.faults import Fault, nearest, quote, refuse
from qualgate.documents.misspelt import is_own, misspelt
from qualgate.documents.safe_yaml import read_safe_yaml
from qualgate.documents.source import Document
from qualgate.documents.strict_yaml import parse_yaml, read_yaml
from qualgate.documents.typed import ABSENT, Written, as_model, dotted, percent, plain_number, planned, stated

__all__ = [
    "ABSENT",
    "Document",
    "Fault",
    "Written",
    "as_model",
    "dotted",
    "is_own",
    "misspelt",
    "nearest",
    "parse_yaml",
    "percent",
    "plain_number",
    "planned",
    "quote",
    "read_safe_yaml",
    "read_yaml",
    "refuse",
    "stated",
]
