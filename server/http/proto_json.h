// JSON of a protobuf message as Triton's HTTP side writes it: field names as in the schema, 64-bit
// integers as numbers (protobuf's own JSON makes them strings), enums by name.
#pragma once

#include <google/protobuf/message.h>

#include <string>

namespace stampmill {

struct ProtoJsonOptions {
  // Also fields that hold their default: zeros, empty strings and lists. Unset messages and oneofs
  // are left out always.
  bool print_defaults = true;
};

std::string ProtoToJson(const google::protobuf::Message& message, const ProtoJsonOptions& options);

}  // namespace stampmill
