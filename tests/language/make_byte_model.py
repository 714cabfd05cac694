"""A small language model that reads and writes any text: its tokens are the bytes, and two more.

Usage: make_byte_model.py FILE. Its weights are random; what it writes is noise, but the same noise
on every machine.
"""

import sys

import make_model

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def alphabet():
    """GPT-2's: one printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def add_vocabulary(writer):
    tokens = ["<|im_start|>", "<|im_end|>", *alphabet()]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3] + [1] * 256)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


if __name__ == "__main__":
    make_model.VOCABULARY = 258
    make_model.make(sys.argv[1], "llama", vocabulary=add_vocabulary)
