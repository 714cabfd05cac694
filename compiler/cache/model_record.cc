#include "compiler/cache/model_record.h"

#include <algorithm>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

// A record names at most as many objects as a model has kernels; the bounds only keep a hostile
// text from growing without end.
constexpr size_t kRecordBytesMax = size_t{16} << 20;

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Values come from file names and flags; a line break in one would forge a line.
std::string Printable(absl::string_view value) {
  std::string text(value);
  std::replace_if(text.begin(), text.end(), IsControl, '_');
  return text;
}

// Writes lines and closes with the sum.
class RecordWriter {
 public:
  explicit RecordWriter(absl::string_view kind) {
    absl::StrAppend(&text_, "stampmill ", kind, " 1\n");
  }
  void Line(absl::string_view word, absl::string_view value) {
    absl::StrAppend(&text_, word, " ", Printable(value), "\n");
  }
  void Line(absl::string_view word, const Digest& digest) { Line(word, digest.ToHex()); }
  std::string Finish() {
    const Digest sum = Sha256({reinterpret_cast<const std::byte*>(text_.data()), text_.size()});
    absl::StrAppend(&text_, "sum ", sum.ToHex(), "\n");
    return std::move(text_);
  }

 private:
  std::string text_;
};

// Reads the lines in the order in which they are written; the sum is checked first.
class RecordReader {
 public:
  static absl::StatusOr<RecordReader> Open(absl::string_view text, absl::string_view kind) {
    if (text.size() > kRecordBytesMax) {
      return absl::DataLossError(
          absl::StrCat("record size: got ", text.size(), ", limit ", kRecordBytesMax));
    }
    constexpr size_t kSumLine = 4 + 64 + 1;
    if (text.size() < kSumLine) return absl::DataLossError("record: cut off");
    const absl::string_view body = text.substr(0, text.size() - kSumLine);
    absl::string_view tail = text.substr(body.size());
    const Digest sum = Sha256({reinterpret_cast<const std::byte*>(body.data()), body.size()});
    if (tail != absl::StrCat("sum ", sum.ToHex(), "\n")) {
      return absl::DataLossError("record: its sum does not match its text");
    }
    RecordReader reader(body);
    const std::string head = absl::StrCat("stampmill ", kind, " 1");
    if (reader.NextLine() != head) {
      return absl::DataLossError(absl::StrCat("record: does not begin with '", head, "'"));
    }
    return reader;
  }

  // Whether the next line begins with `word`.
  bool At(absl::string_view word) const {
    return rest_.size() > word.size() && rest_.substr(0, word.size()) == word &&
           rest_[word.size()] == ' ';
  }
  // Empty after an error, which Finish reports.
  absl::string_view Value(absl::string_view word) {
    if (!At(word)) {
      if (status_.ok()) {
        status_ = absl::DataLossError(
            absl::StrCat("record: got '", rest_.substr(0, std::min<size_t>(rest_.size(), 20)),
                         "', expected '", word, "'"));
      }
      return {};
    }
    return NextLine().substr(word.size() + 1);
  }
  Digest DigestValue(absl::string_view word) {
    const absl::string_view value = Value(word);
    const std::optional<Digest> digest = Digest::FromHex(value);
    if (!digest.has_value() && status_.ok()) {
      status_ = absl::DataLossError(absl::StrCat("record: '", word, "' is no digest"));
    }
    return digest.value_or(Digest{});
  }
  int64_t IntValue(absl::string_view word) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(Value(word), &number) && status_.ok()) {
      status_ = absl::DataLossError(absl::StrCat("record: '", word, "' is no number"));
    }
    return number;
  }
  void Fail(absl::string_view what) {
    if (status_.ok()) status_ = absl::DataLossError(absl::StrCat("record: ", what));
  }
  absl::Status Finish() {
    if (status_.ok() && !rest_.empty()) Fail("lines after its end");
    return status_;
  }

 private:
  explicit RecordReader(absl::string_view text) : rest_(text) {}

  absl::string_view NextLine() {
    const size_t end = rest_.find('\n');
    const absl::string_view line = rest_.substr(0, end);
    rest_ = end == absl::string_view::npos ? absl::string_view() : rest_.substr(end + 1);
    if (std::any_of(line.begin(), line.end(), IsControl)) Fail("a control character");
    return line;
  }

  absl::string_view rest_;
  absl::Status status_;
};

}  // namespace

ModelKey ModelRecord::Key() const {
  Sha256Stream hash;
  // Counts and lengths make the parts unambiguous.
  hash.Update(absl::StrCat("stampmill model key 1\n", sources.size(), "\n"));
  for (const Source& source : sources) hash.Update(source.digest.ToHex());
  hash.Update(absl::StrCat("\n", target.size(), " ", target, "\n", options.size(), " ", options,
                           "\n", compiler_abi.ToHex(), "\n"));
  return hash.Finish();
}

std::string ModelRecord::Serialize() const {
  RecordWriter out("model");
  out.Line("name", name);
  out.Line("target", target);
  out.Line("options", options);
  out.Line("abi", compiler_abi);
  for (const Source& source : sources) {
    out.Line("source", absl::StrCat(source.digest.ToHex(), " ", source.path));
  }
  out.Line("program", program);
  for (const Digest& object : objects) out.Line("object", object);
  out.Line("compile_ms", absl::StrCat(compile_milliseconds));
  return out.Finish();
}

absl::StatusOr<ModelRecord> ModelRecord::Parse(absl::string_view text) {
  ASSIGN_OR_RETURN(RecordReader in, RecordReader::Open(text, "model"));
  ModelRecord record;
  record.name = std::string(in.Value("name"));
  record.target = std::string(in.Value("target"));
  record.options = std::string(in.Value("options"));
  record.compiler_abi = in.DigestValue("abi");
  while (in.At("source")) {
    const absl::string_view value = in.Value("source");
    const std::optional<Digest> digest = Digest::FromHex(value.substr(0, 64));
    if (!digest.has_value() || value.size() < 66 || value[64] != ' ') {
      in.Fail("'source' is no digest and path");
      break;
    }
    record.sources.push_back({.path = std::string(value.substr(65)), .digest = *digest});
  }
  record.program = in.DigestValue("program");
  while (in.At("object")) record.objects.push_back(in.DigestValue("object"));
  record.compile_milliseconds = in.IntValue("compile_ms");
  RETURN_IF_ERROR(in.Finish());
  if (record.sources.empty()) return absl::DataLossError("record: no source");
  return record;
}

std::string ModelFilesRecord::Serialize() const {
  RecordWriter out("files");
  out.Line("model", model);
  for (const std::string& path : paths) out.Line("file", path);
  return out.Finish();
}

absl::StatusOr<ModelFilesRecord> ModelFilesRecord::Parse(absl::string_view text) {
  ASSIGN_OR_RETURN(RecordReader in, RecordReader::Open(text, "files"));
  ModelFilesRecord record;
  record.model = in.DigestValue("model");
  while (in.At("file")) record.paths.emplace_back(in.Value("file"));
  RETURN_IF_ERROR(in.Finish());
  for (const std::string& path : record.paths) {
    // The importer holds external data to the model's folder; a record may not lead elsewhere.
    if (path.empty() || path[0] == '/' ||
        absl::StrCat("/", path, "/").find("/../") != std::string::npos) {
      return absl::DataLossError("record: a file outside the model's folder");
    }
  }
  return record;
}

std::string KernelRecord::Serialize(const Digest& key) const {
  RecordWriter out("kernel");
  out.Line("key", key);
  out.Line("artifact", artifact);
  out.Line("entry", entry);
  return out.Finish();
}

absl::StatusOr<KernelRecord> KernelRecord::Parse(absl::string_view text, const Digest& key) {
  ASSIGN_OR_RETURN(RecordReader in, RecordReader::Open(text, "kernel"));
  if (in.DigestValue("key") != key) in.Fail("of another key");
  KernelRecord record;
  record.artifact = in.DigestValue("artifact");
  record.entry = std::string(in.Value("entry"));
  RETURN_IF_ERROR(in.Finish());
  return record;
}

}  // namespace stampmill
