// Tokenizes texts for comparisons with other programs: a length and a text each on standard input
// (4 bytes, little endian), a length and that many ids each on standard output; then as many
// lengths and texts that the ids become.
//
//   tokenize MODEL [--add-special] [--parse-special] [--pre=NAME]
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "base/check.h"
#include "text/testing/tokenizer_file.h"
#include "text/tokenizer.h"

namespace stampmill {
namespace {

void Write(const void* data, size_t size) { CHECK_EQ(std::fwrite(data, 1, size, stdout), size); }

void WriteSize(size_t size) {
  const auto number = static_cast<uint32_t>(size);
  Write(&number, sizeof(number));
}

int Run(int argc, char** argv) {
  EncodeOptions options;
  std::string path, pre;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--add-special") {
      options.add_special = true;
    } else if (argument == "--parse-special") {
      options.parse_special = true;
    } else if (absl::StartsWith(argument, "--pre=")) {
      pre = argument.substr(6);
    } else {
      path = argument;
    }
  }
  auto spec = ReadTokenizerFile(path, pre);
  if (!spec.ok()) {
    std::cerr << spec.status() << "\n";
    return 1;
  }
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  std::vector<std::string> texts;
  for (uint32_t size; std::fread(&size, sizeof(size), 1, stdin) == 1;) {
    std::string text(size, 0);
    CHECK_EQ(std::fread(text.data(), 1, size, stdin), size);
    const auto ids = (*tokenizer)->Encode(text, options);
    CHECK_OK(ids);
    WriteSize(ids->size());
    Write(ids->data(), ids->size() * sizeof(int32_t));
    Detokenizer detokenizer(tokenizer->get(), {.special = true});
    text.clear();
    for (const int32_t id : *ids) text += detokenizer.Add(id);
    texts.push_back(text + detokenizer.Finish());
  }
  for (const std::string& text : texts) {
    WriteSize(text.size());
    Write(text.data(), text.size());
  }
  return 0;
}

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) { return stampmill::Run(argc, argv); }
