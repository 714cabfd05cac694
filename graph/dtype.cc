// One row a type; every property and name comes from that row.
#include "graph/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace stampmill {
namespace {

enum class Class : uint8_t { kNone, kBool, kSigned, kUnsigned, kFloat };

struct Row {
  DType dtype;
  Class kind;
  uint8_t size;
  int32_t onnx;  // TensorProto.DataType
  absl::string_view name;
  absl::string_view kserve;
};

constexpr std::array<Row, kDTypeCount> kRows = {{
    {DType::kInvalid, Class::kNone, 0, 0, "invalid", "INVALID"},
    {DType::kBool, Class::kBool, 1, 9, "bool", "BOOL"},
    {DType::kI8, Class::kSigned, 1, 3, "i8", "INT8"},
    {DType::kI16, Class::kSigned, 2, 5, "i16", "INT16"},
    {DType::kI32, Class::kSigned, 4, 6, "i32", "INT32"},
    {DType::kI64, Class::kSigned, 8, 7, "i64", "INT64"},
    {DType::kU8, Class::kUnsigned, 1, 2, "u8", "UINT8"},
    {DType::kU16, Class::kUnsigned, 2, 4, "u16", "UINT16"},
    {DType::kU32, Class::kUnsigned, 4, 12, "u32", "UINT32"},
    {DType::kU64, Class::kUnsigned, 8, 13, "u64", "UINT64"},
    {DType::kF16, Class::kFloat, 2, 10, "f16", "FP16"},
    {DType::kBF16, Class::kFloat, 2, 16, "bf16", "BF16"},
    {DType::kF32, Class::kFloat, 4, 1, "f32", "FP32"},
    {DType::kF64, Class::kFloat, 8, 11, "f64", "FP64"},
}};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(RowsAreInOrder());

// A number past the list (from bytes not yet checked) reads as kInvalid.
const Row& RowOf(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  return kRows[index < kRows.size() ? index : 0];
}

template <typename Predicate>
std::optional<DType> FindRow(Predicate predicate) {
  for (size_t i = 1; i < kRows.size(); ++i) {
    if (predicate(kRows[i])) return kRows[i].dtype;
  }
  return std::nullopt;
}

// A float in whose last bit is noted that the value lay between two floats: rounding it further
// gives what rounding the double itself would.
float RoundToOdd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value) || std::isinf(nearest)) {
    return nearest;
  }
  if (std::bit_cast<uint32_t>(nearest) & 1) return nearest;
  const float infinity = std::numeric_limits<float>::infinity();
  return std::nextafter(nearest, value > nearest ? infinity : -infinity);
}

}  // namespace

size_t SizeBytes(DType dtype) { return RowOf(dtype).size; }
bool IsFloat(DType dtype) { return RowOf(dtype).kind == Class::kFloat; }
bool IsInteger(DType dtype) { return IsSignedInteger(dtype) || IsUnsignedInteger(dtype); }
bool IsSignedInteger(DType dtype) { return RowOf(dtype).kind == Class::kSigned; }
bool IsUnsignedInteger(DType dtype) { return RowOf(dtype).kind == Class::kUnsigned; }

absl::string_view Name(DType dtype) { return RowOf(dtype).name; }
absl::string_view KServeName(DType dtype) { return RowOf(dtype).kserve; }
int32_t OnnxDataType(DType dtype) { return RowOf(dtype).onnx; }

std::optional<DType> DTypeFromName(absl::string_view name) {
  return FindRow([name](const Row& row) { return row.name == name; });
}

std::optional<DType> DTypeFromKServeName(absl::string_view name) {
  return FindRow([name](const Row& row) { return row.kserve == name; });
}

std::optional<DType> DTypeFromOnnx(int32_t onnx_data_type) {
  return FindRow([onnx_data_type](const Row& row) { return row.onnx == onnx_data_type; });
}

float HalfToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  // Zero or subnormal: mantissa * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN stays NaN, quiet, with the top of its payload
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  }
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and above round to infinity
  if (magnitude < 0x38800000) {
    // Below 2^-14: adding 0.5 leaves value * 2^24, rounded to nearest even, in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + odd) >> 13));
}

uint16_t DoubleToHalf(double value) { return FloatToHalf(RoundToOdd(value)); }
uint16_t DoubleToBFloat16(double value) { return FloatToBFloat16(RoundToOdd(value)); }

float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace stampmill
