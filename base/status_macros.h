// RETURN_IF_ERROR and ASSIGN_OR_RETURN: the two lines that fallible code is made of.
//
//   RETURN_IF_ERROR(reader.status());
//   ASSIGN_OR_RETURN(const Mapping mapping, Mapping::File(path));
//
// Both evaluate their expression once and work in a function that returns absl::Status or any
// absl::StatusOr<T>. A left-hand side that contains a comma must stand in parentheses.
#pragma once

#include <utility>

#include "absl/base/optimization.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                   \
  do {                                                \
    if (absl::Status stampmill_status = (expression); \
        ABSL_PREDICT_FALSE(!stampmill_status.ok())) { \
      return stampmill_status;                        \
    }                                                 \
  } while (false)

#define ASSIGN_OR_RETURN(left, expression)                                   \
  STAMPMILL_ASSIGN_OR_RETURN(STAMPMILL_JOIN(stampmill_status_or_, __LINE__), \
                             STAMPMILL_STRIP(left), expression)

#define STAMPMILL_ASSIGN_OR_RETURN(holder, left, expression) \
  auto holder = (expression);                                \
  if (ABSL_PREDICT_FALSE(!holder.ok())) {                    \
    return std::move(holder).status();                       \
  }                                                          \
  left = *std::move(holder)

#define STAMPMILL_JOIN(a, b) STAMPMILL_JOIN_EXPANDED(a, b)
#define STAMPMILL_JOIN_EXPANDED(a, b) a##b

// (a) -> a, a -> a.
#define STAMPMILL_STRIP(x) STAMPMILL_STRIP_DELETE(STAMPMILL_STRIP_INNER x)
#define STAMPMILL_STRIP_INNER(...) STAMPMILL_STRIP_INNER __VA_ARGS__
#define STAMPMILL_STRIP_DELETE(...) STAMPMILL_STRIP_PASTE(__VA_ARGS__)
#define STAMPMILL_STRIP_PASTE(...) STAMPMILL_DELETED_##__VA_ARGS__
#define STAMPMILL_DELETED_STAMPMILL_STRIP_INNER
