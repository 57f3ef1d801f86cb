"""A normalizer of one's own, text to text: an evalset says `normalizers: [first_word]`, or on the command line
`qualgate score --scorer exact_match --normalizer first_word CASES.jsonl OUTPUTS.jsonl`.
"""


def first_word(text: str) -> str:
    return text.split(maxsplit=1)[0] if text.strip() else ""
