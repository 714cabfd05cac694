// JsonFields: the fields of one JSON object of a request, read with their types and limits checked.
//
// Every reader leaves `out` as it is where the field is missing or null, which clients send for
// what they leave to the server, and keeps the first error, so that a parser reads all it wants and
// asks once. Messages name the field by its path, what it got and the limit.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// `body` as an object. INVALID_ARGUMENT: it is no JSON, nested deeper than 100, or no object.
absl::StatusOr<boost::json::object> ParseJsonObject(absl::string_view body);

// "a string", "an array"...: for messages.
absl::string_view JsonKind(const boost::json::value& value);
absl::string_view JsonText(const boost::json::value& string);

class JsonFields {
 public:
  // Borrows both. `path` stands before the names, with its dot; "" for the request itself.
  explicit JsonFields(const boost::json::object& object, std::string path = "")
      : object_(object), path_(std::move(path)) {}

  const absl::Status& status() const { return status_; }
  // Keeps it if it is the first one.
  void Fail(absl::Status status);
  void Fail(absl::string_view name, absl::string_view message);

  // Null where it is missing or null.
  const boost::json::value* Find(absl::string_view name) const;
  std::string Path(absl::string_view name) const;

  void Bool(absl::string_view name, bool& out);
  void String(absl::string_view name, std::string& out);
  // Numbers like 5.0 are integers too.
  void Int(absl::string_view name, int64_t min, int64_t max, int32_t& out);
  void Int(absl::string_view name, int64_t min, int64_t max, std::optional<int32_t>& out);
  void Float(absl::string_view name, double min, double max, float& out);
  // Null unless it is there and an object or array.
  const boost::json::object* Object(absl::string_view name);
  const boost::json::array* Array(absl::string_view name);
  // Of at most `count_max`, each at most INT32_MAX and not negative.
  void Tokens(absl::string_view name, size_t count_max, std::vector<int32_t>& out);

 private:
  const boost::json::object& object_;
  const std::string path_;
  absl::Status status_;
};

// An integer in the limits; `path` is for the message.
absl::StatusOr<int64_t> IntegerOf(const boost::json::value& value, int64_t min, int64_t max,
                                  absl::string_view path);

}  // namespace stampmill
