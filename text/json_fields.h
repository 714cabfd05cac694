// Fields of a JSON document from outside, by name, with an error that has the path when one is
// missing or of another type.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// Parses a whole text, at most 64 deep.
absl::StatusOr<boost::json::value> ParseJson(absl::string_view json);

// A value and where it is. Borrows the document.
class JsonField {
 public:
  JsonField(const boost::json::value* value, std::string path)
      : value_(value), path_(std::move(path)) {}

  // Absent and null are the same.
  bool is_null() const { return value_ == nullptr || value_->is_null(); }
  bool is_string() const { return value_ != nullptr && value_->is_string(); }
  bool is_array() const { return value_ != nullptr && value_->is_array(); }
  bool is_object() const { return value_ != nullptr && value_->is_object(); }
  const std::string& path() const { return path_; }

  // The field of an object; null where there is none.
  JsonField operator[](absl::string_view key) const;
  JsonField At(size_t index) const;
  size_t size() const;  // of an array; 0 for others

  absl::StatusOr<absl::string_view> String() const;
  absl::StatusOr<int64_t> Integer() const;
  absl::StatusOr<double> Number() const;
  // `otherwise` where it is null.
  absl::StatusOr<bool> Bool(bool otherwise) const;
  absl::StatusOr<const boost::json::array*> Array() const;
  absl::StatusOr<const boost::json::object*> Object() const;

  absl::Status Wrong(absl::string_view wanted) const;
  // For a kind or an option that is not known.
  absl::Status Unsupported(absl::string_view what) const;

 private:
  const boost::json::value* value_;
  std::string path_;
};

inline absl::string_view View(boost::json::string_view text) {
  return absl::string_view(text.data(), text.size());
}

}  // namespace stampmill
