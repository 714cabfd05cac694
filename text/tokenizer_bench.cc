// How fast tokenizers of real models are, on one thread: making one, and encoding a text.
//
//   tokenizer_bench TEXT MODEL...    each MODEL a GGUF file or a tokenizer.json
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "text/testing/tokenizer_file.h"
#include "text/tokenizer.h"

namespace stampmill {
namespace {

double CpuSeconds() {
  timespec now;
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
  return static_cast<double>(now.tv_sec) + now.tv_nsec * 1e-9;
}

// The least of five.
double SecondsOf(const std::function<void()>& run) {
  double least = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = CpuSeconds();
    run();
    least = std::min(least, CpuSeconds() - begin);
  }
  return least;
}

void Measure(const std::string& path, const std::string& text) {
  const auto spec = ReadTokenizerFile(path, /*pre=*/"");
  CHECK_OK(spec);
  const double creating = SecondsOf([&] { CHECK_OK(Tokenizer::Create(*spec)); });
  const auto tokenizer = *Tokenizer::Create(*spec);
  size_t tokens = 0;
  const double encoding = SecondsOf([&] { tokens = tokenizer->Encode(text, {})->size(); });
  const auto ids = *tokenizer->Encode(text, {});
  const double decoding = SecondsOf([&] {
    Detokenizer detokenizer(tokenizer.get());
    for (const int32_t id : ids) detokenizer.Add(id);
  });
  std::printf(
      "%s: %d tokens made in %.1f ms; %.1f MB in %zu tokens: encoded %.1f MB/s, decoded "
      "%.1f million tokens/s\n",
      path.c_str(), tokenizer->vocabulary_size(), creating * 1e3, text.size() * 1e-6, tokens,
      text.size() * 1e-6 / encoding, ids.size() * 1e-6 / decoding);
}

}  // namespace
}  // namespace stampmill

int main(int argc, char** argv) {
  CHECK(argc >= 3) << "tokenizer_bench TEXT MODEL...";
  const auto text = stampmill::ReadFile(argv[1]);
  CHECK_OK(text);
  for (int i = 2; i < argc; ++i) stampmill::Measure(argv[i], *text);
  return 0;
}
