// The pre-tokenizers that GGUF files name. A name stands for expressions that the file does not
// have; so the table is part of the format.
#include <string>

#include "absl/strings/str_cat.h"
#include "text/gguf_vocabulary.h"

namespace stampmill {
namespace {

// Pieces that several patterns share.
#define SPACES "\\s+(?!\\S)|\\s+"
#define LINES "\\s*[\\r\\n]+|" SPACES
#define CONTRACTIONS "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define LLAMA3 CONTRACTIONS "|" WORD "|\\p{N}{1,3}|" SYMBOLS "|" LINES
#define QWEN2 CONTRACTIONS "|" WORD "|\\p{N}|" SYMBOLS "|" LINES
// Words in which capitals come first: ASCII's small letters are never in the first part, its
// capitals never in the second.
#define HEAD(letters) "((?=[" letters "])([^a-z]))"
#define TAIL(letters) "((?=[" letters "])([^A-Z]))"
#define CASED_WORD(letters, end)                                                                   \
  "[^\\r\\n\\p{L}\\p{N}]?" HEAD(letters) "*" TAIL(letters) "+" end "|[^\\r\\n\\p{L}\\p{N}]?" HEAD( \
      letters) "+" TAIL(letters) "*" end
#define SLASHED_SYMBOLS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define BLOOM " ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+"
#define ASCII_WORD "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define MARKED_WORD "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
// Letters that have case, as Unicode had them when the pattern was made.
#define CASED_LETTERS                                                                           \
  "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"  \
  "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1"          \
  "\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD" \
  "\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D" \
  "\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4"         \
  "\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC"        \
  "\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128"    \
  "\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B"   \
  "\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787"  \
  "\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"              \
  "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"        \
  "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943"
#define CHINESE "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"

struct Named {
  absl::string_view names;  // between spaces
  GgufPreTokenizer pre_tokenizer;
};

std::vector<Named> MakeTable() {
  return {
      {" default ", {{"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}}},
      {" llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
       {.patterns = {LLAMA3}, .whole_words = true, .adds_bos = true}},
      {" dbrx smaug-bpe glm4 chatglm-bpe ", {{LLAMA3}}},
      {" deepseek-llm ",
       {{"[\r\n]", "\\s?[" CASED_LETTERS "]+",
         "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+", "\\s+$", CHINESE,
         "\\p{N}+"}}},
      {" deepseek-coder ", {{"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CHINESE, "\\p{N}"}}},
      {" deepseek-v3 hunyuan-dense ",
       {{"\\p{N}{1,3}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
         ASCII_WORD "|" MARKED_WORD "|" LINES}}},
      {" falcon ", {{"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}}},
      {" starcoder refact command-r smollm codeshell exaone minerva-7b ", {{"\\p{N}", GPT2}}},
      {" gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt "
       "olmo jais trillion granite-docling exaone4 ",
       {{GPT2}}},
      {" jina-v1-en jina-v2-code roberta-bpe ", {.patterns = {GPT2}, .adds_separator = true}},
      {" qwen2 deepseek-r1-qwen megrez stablelm2 hunyuan solar-open ", {{QWEN2}}},
      {" qwen35 ",
       {{CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
                      " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES}}},
      {" poro-chat bloom gpt3-finnish ", {{BLOOM}}},
      {" viking ", {{BLOOM, "\\p{N}"}}},
      {" tekken ",
       {.patterns = {CASED_WORD("\\p{L}", "") "|\\p{N}|" SLASHED_SYMBOLS "|" LINES},
        .whole_words = true,
        .adds_bos = true}},
      {" gpt-4o llama4 kanana2 ",
       {{CASED_WORD("\\p{L}", CONTRACTIONS "?") "|\\p{N}{1,3}|" SLASHED_SYMBOLS "|" LINES}}},
      {" chameleon ",
       {.patterns = {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
                     "([\\t\\n]|    |  )", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2},
        .adds_bos = true}},
      {" bailingmoe bailingmoe2 llada-moe ",
       {{"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|" WORD "|\\p{N}|" SYMBOLS
         "|\\s*[\\r\\n]|" SPACES}}},
      {" seed-coder ", {{CONTRACTIONS "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES}}},
      {" grok-2 ", {{QWEN2}}},
  };
}

}  // namespace

absl::StatusOr<GgufPreTokenizer> GgufPreTokenizerNamed(absl::string_view name) {
  const std::string between = absl::StrCat(" ", name, " ");
  if (name.find(' ') == absl::string_view::npos) {
    for (const Named& named : MakeTable()) {
      if (named.names.find(between) != absl::string_view::npos) return named.pre_tokenizer;
    }
  }
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.ggml.pre: '", name.substr(0, 100), "' is not known"));
}

}  // namespace stampmill
