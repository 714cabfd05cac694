// Element types of tensors: the closed list that every layer shares, with their sizes and their
// names in the formats that Stampmill reads and writes. Block-quantised weights are bytes (kU8) to
// tensors; what they stand for is graph/block_format.h's affair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace stampmill {

// The numbers are part of the program format (compiler/program/program.h): append only.
enum class DType : uint8_t {
  kInvalid = 0,
  kBool = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kBF16 = 11,
  kF32 = 12,
  kF64 = 13,
};
inline constexpr int kDTypeCount = 14;

// Bytes of one element; 0 for kInvalid. A bool is one byte that holds 0 or 1.
size_t SizeBytes(DType dtype);

bool IsFloat(DType dtype);    // f16, bf16, f32, f64
bool IsInteger(DType dtype);  // signed and unsigned integers, not bool
bool IsSignedInteger(DType dtype);
bool IsUnsignedInteger(DType dtype);

// "f32", "i64", "bool", ...: how Stampmill writes a type in messages and descriptors.
absl::string_view Name(DType dtype);
std::optional<DType> DTypeFromName(absl::string_view name);

// KServe v2 names: "FP32", "INT64", "BOOL", "BF16", ... ("BYTES" is no DType: nullopt).
absl::string_view KServeName(DType dtype);
std::optional<DType> DTypeFromKServeName(absl::string_view name);

// TensorProto.DataType of the ONNX specification; nullopt for strings, complex and sub-byte types.
std::optional<DType> DTypeFromOnnx(int32_t onnx_data_type);
int32_t OnnxDataType(DType dtype);

// Conversions of one value, round to nearest even, as IEEE 754 (f16) and truncated f32 (bf16).
// Those from double round once, which two conversions by way of float would not.
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
uint16_t DoubleToHalf(double value);
float BFloat16ToFloat(uint16_t bits);
uint16_t FloatToBFloat16(float value);
uint16_t DoubleToBFloat16(double value);

}  // namespace stampmill
