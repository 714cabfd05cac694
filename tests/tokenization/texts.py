"""Texts that tokenizers disagree on, and what our tokenizer makes of them."""

import os
import random
import struct
import subprocess
import unicodedata

TOKENIZE = os.path.abspath("text/testing/tokenize")

_FIXED = [
    "",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "Hello, world! It's a test; we'll see. I'VE DON'T they'Re",
    "The quick brown fox jumps over the lazy dog.",
    "1234567890 12 3.14159 1,000,000 0x1F 1e-10 $100 +5 =6 ^7 ~8 |9 `10` <11>",
    "    def f(x):\n        return x ** 2  # comment\n\n\n\tif a&&b || !c { d[0] = 'x'; }\n",
    'for (int i = 0; i < n; ++i) { std::cout << v[i] << "\\n"; }',
    "Привет, мир! Съешь же ещё этих мягких французских булок",
    "你好，世界！今天天气怎么样？",
    "こんにちは世界。カタカナとひらがな漢字",
    "안녕하세요 세계! 한국어 문장입니다.",
    "مرحبا بالعالم، كيف حالك؟ ١٢٣٤ שלום עולם",
    "नमस्ते दुनिया, यह एक परीक्षण है। १२३ สวัสดีชาวโลก",
    "Γειά σου Κόσμε, xin chào thế giới, Straße naïve café ŁÓDŹ İstanbul ſ ﬁ Ǆ",
    "😀👨\u200d👩\u200d👧\u200d👦🏳️\u200d🌈👍🏽🇩🇪 emoji 🤖",
    "e\u0301 n\u0303 \u0301alone a\u0308\u0323 zero\u200bwidth\ufeffbom",
    "\u00a0nbsp\u2003em\u3000ideo\u2028line\u0085next",
    "a\r\nb\rc\n\n  d  \n   \n e   ",
    "   leading and trailing   \t\t\t mixed \t \t x",
    "x" * 300 + " " * 300 + "\n" * 100 + "ab" * 200,
    "...!!!???--- «quotes» “curly” — dash … (a|b) [c] {d} /e/ \\f",
    "http://example.com/path?query=1&b=2#frag user@example.com C:\\Windows",
    "ALLCAPS camelCase snake_case kebab-case HTMLParser",
    "½ ² ³ ① Ⅷ ㊿ 𝟘𝟙 ४५६ ∑∫√∞≠ ±×÷ €£¥₹",
    "<|im_start|>user\nhi<|im_end|>\n<start_of_turn>user\nhello<end_of_turn><bos></s> <s> <unk>",
    "▁under▁score ▁ Ġ weird Ċ \x01\x02\x7f",
    "日本語123abc中文ABC한글 ᏣᎳᎩ 𐐀𐐨 \ue000private",
]
_RANGES = [
    (0x20, 0x7E),
    (0x9, 0xD),
    (0x80, 0x24F),
    (0x250, 0x5FF),
    (0x600, 0x6FF),
    (0x900, 0xFFF),
    (0x1000, 0x139F),
    (0x1E00, 0x206F),
    (0x2070, 0x2BFF),
    (0x3000, 0x33FF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xF900, 0xFFEF),
    (0x10000, 0x1097F),
    (0x1F000, 0x1FAFF),
    (0x0, 0xD7FF),
    (0xE000, 0x10FFFF),
]
_PARTS = [" ", "  ", "\n", "\t", "\r", "\u00a0", "a", "b", "ll", "s", "A", "é", "中", "1", "'", "."]
_WORDS = (
    "the of and to in a is that it for was on are with his they this from have by not but Under "
    "THE Internationalization antidisestablishmentarianism tokenization 2024 GPT-4 3.5"
).split()


def _random_text(source):
    kind = source.random()
    size = source.choice([1, 2, 3, 5, 8, 13, 30, 80])
    if kind < 0.35:
        out = []
        for _ in range(size):
            first, last = source.choice(_RANGES)
            out += [chr(source.randint(first, last)) for _ in range(source.randint(1, 4))]
            if source.random() < 0.3:
                out.append(source.choice([" ", "  ", "\n", "'s", "\t"]))
        return "".join(out)
    if kind < 0.6:
        return "".join(source.choice(_PARTS) for _ in range(size))
    if kind < 0.8:
        text = "".join(source.choice(_FIXED) + " " for _ in range(source.randint(1, 3)))
        begin = source.randint(0, len(text))
        return text[begin : source.randint(begin, len(text))]
    return "".join(source.choice(_WORDS) + source.choice([" ", "\n", ", "]) for _ in range(size))


def valid(count, seed, known_in="15"):
    """Texts in UTF-8. `known_in`: "3.2" leaves out characters that Unicode 3.2 did not have, for
    libraries with old tables; "15" those that this Python does not have."""
    source = random.Random(seed)
    table = unicodedata.ucd_3_2_0 if known_in == "3.2" else unicodedata
    made = _FIXED + [_random_text(source) for _ in range(count)]
    made.append("".join(_random_text(source) for _ in range(2000))[:100_000])
    return [
        "".join(c for c in text if table.category(c) not in ("Cn", "Cs")).encode() for text in made
    ]


def invalid(count, seed):
    """Texts with bytes that are no UTF-8: cut characters and stray bytes. No overlong forms and no
    surrogates, which llama.cpp takes for characters."""
    source = random.Random(seed)
    made = []
    while len(made) < count:
        text = bytearray(_random_text(source).encode("utf-8", "replace"))
        for _ in range(source.randint(1, 4)):
            text.insert(source.randint(0, len(text)), source.choice(b"\x80\xbf\xff\xfe\xc3\x9f"))
        if not _has_overlong(text):
            made.append(bytes(text))
    return made


def _has_overlong(text):
    pairs = zip(text, text[1:])
    return any(
        (a == 0xE0 and 0x80 <= b < 0xA0)
        or (a == 0xED and 0xA0 <= b < 0xC0)
        or (a == 0xF0 and 0x80 <= b < 0x90)
        or (a == 0xF4 and 0x90 <= b < 0xC0)
        for a, b in pairs
    )


def ours(model, texts, *flags):
    """Ids and texts again, one of each a text."""
    frames = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    output = subprocess.run(
        [TOKENIZE, model, *flags], input=frames, stdout=subprocess.PIPE, check=True
    ).stdout
    at = 0

    def take(size_of_one):
        nonlocal at
        (count,) = struct.unpack_from("<I", output, at)
        begin, at = at + 4, at + 4 + count * size_of_one
        return output[begin:at]

    ids = [list(memoryview(take(4)).cast("i")) for _ in texts]
    return ids, [take(1) for _ in texts]
