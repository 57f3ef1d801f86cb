"""The reference model's tokenizer: byte-level BPE of 768 tokens with every digit on its own, and a chat template.

Byte-level, so any text survives a round trip; single digits, so that sums line up. `<tool_call>` and its kin are one
token each but ordinary text when decoded: a scorer must see them.

    python -m qualgate.refmodel.training.tokenizer --out FOLDER
"""

# ruff: noqa: E501  a break inside a template tag costs more reading than a long line
from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

VOCABULARY = 768
CONTEXT = 1024
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKUP = ("<tools>", "</tools>", "<tool_call>", "</tool_call>")

# Tools are shown as signatures, `name(city: string, days?: integer): description`: a third of the tokens of their
# JSON Schema, and a prompt token costs as much as an answer token.
CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>system
<tools>
{% for tool in tools %}
{%- set function = tool.function if tool.function is defined else tool %}
{%- set required = function.parameters.required | default([]) %}
{{- function.name }}(
{%- for name, parameter in function.parameters.properties.items() %}
{{- name }}{{ '' if name in required else '?' }}: {{ parameter.enum | join('|') if parameter.enum is defined else parameter.type }}{{ '' if loop.last else ', ' }}
{%- endfor %}): {{ function.description }}
{% endfor %}</tools><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def train(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Learn the merges from `texts`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(MARKUP),
        special_tokens=list(CONTROL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in MARKUP])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
        chat_template=CHAT_TEMPLATE,
    )


def main() -> None:
    """Run the command line: learn the merges, and write the tokenizer to a folder."""
    from qualgate.refmodel.training.tasks import vocabulary_texts

    parser = argparse.ArgumentParser(description="Train the reference model's tokenizer.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tokenizer = train(vocabulary_texts(arguments.seed))
    tokenizer.save_pretrained(arguments.out)
    print(f"{len(tokenizer)} tokens in {arguments.out}")


if __name__ == "__main__":
    main()
