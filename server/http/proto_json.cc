#include "server/http/proto_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/http/json_text.h"

namespace stampmill {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

class Writer {
 public:
  Writer(const ProtoJsonOptions& options, std::string& out) : options_(options), out_(out) {}

  void Write(const Message& message) {
    out_.push_back('{');
    bool first = true;
    const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const FieldDescriptor* field = descriptor->field(i);
      if (!Shows(message, field)) continue;
      if (!first) out_.push_back(',');
      first = false;
      AppendJsonString(field->name(), out_);
      out_.push_back(':');
      if (field->is_map()) {
        WriteMap(message, field);
      } else if (field->is_repeated()) {
        WriteRepeated(message, field);
      } else {
        WriteValue(message, field, -1);
      }
    }
    out_.push_back('}');
  }

 private:
  bool Shows(const Message& message, const FieldDescriptor* field) const {
    const Reflection* reflection = message.GetReflection();
    if (field->is_repeated()) {
      return options_.print_defaults || reflection->FieldSize(message, field) > 0;
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ||
        field->containing_oneof() != nullptr) {
      return reflection->HasField(message, field);
    }
    return options_.print_defaults || reflection->HasField(message, field);
  }

  void WriteRepeated(const Message& message, const FieldDescriptor* field) {
    out_.push_back('[');
    const int size = message.GetReflection()->FieldSize(message, field);
    for (int i = 0; i < size; ++i) {
      if (i > 0) out_.push_back(',');
      WriteValue(message, field, i);
    }
    out_.push_back(']');
  }

  // Entries in order of key: a map has none of its own.
  void WriteMap(const Message& message, const FieldDescriptor* field) {
    const Reflection* reflection = message.GetReflection();
    std::vector<std::pair<std::string, const Message*>> entries;
    const FieldDescriptor* key = field->message_type()->FindFieldByNumber(1);
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      const Message& entry = reflection->GetRepeatedMessage(message, field, i);
      std::string text;
      if (key->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        AppendJsonString(entry.GetReflection()->GetString(entry, key), text);
      } else {
        std::string number;
        Writer(options_, number).WriteValue(entry, key, -1);
        AppendJsonString(number, text);
      }
      entries.emplace_back(std::move(text), &entry);
    }
    std::sort(entries.begin(), entries.end());
    out_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.push_back(',');
      absl::StrAppend(&out_, entries[i].first, ":");
      WriteValue(*entries[i].second, field->message_type()->FindFieldByNumber(2), -1);
    }
    out_.push_back('}');
  }

  // The field, or element `index` of a repeated one.
  void WriteValue(const Message& message, const FieldDescriptor* field, int index) {
    const Reflection* r = message.GetReflection();
    const bool one = index < 0;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        absl::StrAppend(
            &out_, one ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, index));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        absl::StrAppend(
            &out_, one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, index));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        absl::StrAppend(&out_, one ? r->GetUInt32(message, field)
                                   : r->GetRepeatedUInt32(message, field, index));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        absl::StrAppend(&out_, one ? r->GetUInt64(message, field)
                                   : r->GetRepeatedUInt64(message, field, index));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        AppendJsonNumber(
            one ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, index), out_);
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        AppendJsonNumber(
            one ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, index), out_);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        out_.append((one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, index))
                        ? "true"
                        : "false");
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        AppendJsonString(
            (one ? r->GetEnum(message, field) : r->GetRepeatedEnum(message, field, index))->name(),
            out_);
        break;
      case FieldDescriptor::CPPTYPE_STRING: {
        const std::string text =
            one ? r->GetString(message, field) : r->GetRepeatedString(message, field, index);
        AppendJsonString(
            field->type() == FieldDescriptor::TYPE_BYTES ? absl::Base64Escape(text) : text, out_);
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Write(one ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, index));
        break;
    }
  }

  const ProtoJsonOptions& options_;
  std::string& out_;
};

}  // namespace

std::string ProtoToJson(const google::protobuf::Message& message, const ProtoJsonOptions& options) {
  std::string out;
  Writer(options, out).Write(message);
  return out;
}

}  // namespace stampmill
