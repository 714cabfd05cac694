#include "text/json_fields.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace stampmill {

absl::StatusOr<boost::json::value> ParseJson(absl::string_view json) {
  boost::json::parse_options options;
  options.max_depth = 64;
  boost::json::error_code error;
  boost::json::value value = boost::json::parse(boost::json::string_view(json.data(), json.size()),
                                                error, boost::json::storage_ptr(), options);
  if (error) return absl::InvalidArgumentError(absl::StrCat("JSON: ", error.message()));
  return value;
}

JsonField JsonField::operator[](absl::string_view key) const {
  const boost::json::value* found = nullptr;
  if (is_object()) {
    found = value_->get_object().if_contains(boost::json::string_view(key.data(), key.size()));
  }
  return JsonField(found, path_.empty() ? std::string(key) : absl::StrCat(path_, ".", key));
}

JsonField JsonField::At(size_t index) const {
  const boost::json::value* found = nullptr;
  if (is_array() && index < value_->get_array().size()) found = &value_->get_array()[index];
  return JsonField(found, absl::StrCat(path_, "[", index, "]"));
}

size_t JsonField::size() const { return is_array() ? value_->get_array().size() : 0; }

absl::Status JsonField::Wrong(absl::string_view wanted) const {
  const std::string got =
      value_ == nullptr ? "nothing" : boost::json::serialize(*value_).substr(0, 80);
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": got ", absl::Utf8SafeCHexEscape(got), ", wanted ", wanted));
}

absl::Status JsonField::Unsupported(absl::string_view what) const {
  return absl::UnimplementedError(absl::StrCat(
      path_, ": ", absl::Utf8SafeCHexEscape(what.substr(0, 100)), " is not supported"));
}

absl::StatusOr<absl::string_view> JsonField::String() const {
  if (!is_string()) return Wrong("a string");
  return View(value_->get_string());
}

absl::StatusOr<int64_t> JsonField::Integer() const {
  if (value_ != nullptr && value_->is_int64()) return value_->get_int64();
  return Wrong("an integer");
}

absl::StatusOr<double> JsonField::Number() const {
  if (value_ == nullptr || !value_->is_number()) return Wrong("a number");
  if (value_->is_double()) return value_->get_double();
  return value_->is_int64() ? static_cast<double>(value_->get_int64())
                            : static_cast<double>(value_->get_uint64());
}

absl::StatusOr<bool> JsonField::Bool(bool otherwise) const {
  if (is_null()) return otherwise;
  if (!value_->is_bool()) return Wrong("true or false");
  return value_->get_bool();
}

absl::StatusOr<const boost::json::array*> JsonField::Array() const {
  if (!is_array()) return Wrong("an array");
  return &value_->get_array();
}

absl::StatusOr<const boost::json::object*> JsonField::Object() const {
  if (!is_object()) return Wrong("an object");
  return &value_->get_object();
}

}  // namespace stampmill
