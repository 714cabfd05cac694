// Byte table of a program (little endian, version 4). string = u32 length and bytes; list of X =
// u32 count and so many X; place, index = i32, -1 where none; digest = 32 bytes.
//
//   8 bytes        magic "STMPPRG\0"
//   u32            version (kProgramVersion)
//   string         model_name
//   string         target
//   list of string symbols
//   list of        dims: u8 kind, i32 a, i32 b, i64 value
//   list of        checks: place, string message
//   list of        index bounds: index input, i64 limit, string reader
//   list of        value symbols: i32 symbol, index input, i64 element
//   list of tensor inputs: string name, u8 dtype, list of {i64 fixed, place}, buffer
//   i32            states
//   list of tensor outputs
//   list of        buffers: u8 kind, size place, index, u64 weight_offset, u64 weight_size,
//                  i32 first_command, i32 last_command
//   list of digest artifacts
//   digest, u64    weights, weights_size
//   list of        segments: string device_kind, i32 first_command, i32 command_count
//   list of        commands: u8 kind, index artifact, string entry, list of buffer index, list of
//                  offset place, list of dim place, places of tasks, scratch, flops, bytes, u8
//                  fill_value, i32 symbol, limit place, u8 dtype, string label
//   list of        regions: u8 kind, i32 first_command, i32 command_count, count place, i32
//                  iteration, proceed place, i32 trips
//   string         batch_symbol
//   string         batch_reason
//   ... and nothing after it
#include "compiler/program/program.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMagic("STMPPRG\0", 8);

void Write(ByteWriter& out, const Digest& digest) {
  out.Bytes(std::as_bytes(std::span(digest.bytes)));
}

void Write(ByteWriter& out, const ProgramTensor& tensor) {
  out.String(tensor.name);
  out.U8(static_cast<uint8_t>(tensor.dtype));
  out.U32(static_cast<uint32_t>(tensor.dims.size()));
  for (const ProgramDim& dim : tensor.dims) {
    out.I64(dim.fixed);
    out.I32(dim.place);
  }
  out.I32(tensor.buffer);
}

void Write(ByteWriter& out, const ProgramBuffer& buffer) {
  out.U8(static_cast<uint8_t>(buffer.kind));
  out.I32(buffer.size_place);
  out.I32(buffer.index);
  out.U64(buffer.weight_offset);
  out.U64(buffer.weight_size);
  out.I32(buffer.first_command);
  out.I32(buffer.last_command);
}

void Write(ByteWriter& out, const std::vector<int32_t>& numbers) {
  out.U32(static_cast<uint32_t>(numbers.size()));
  for (const int32_t number : numbers) out.I32(number);
}

void Write(ByteWriter& out, const ProgramCommand& command) {
  out.U8(static_cast<uint8_t>(command.kind));
  out.I32(command.artifact);
  out.String(command.entry);
  Write(out, command.buffers);
  Write(out, command.offsets);
  Write(out, command.dims);
  out.I32(command.tasks_place);
  out.I32(command.scratch_place);
  out.I32(command.flops_place);
  out.I32(command.bytes_place);
  out.U8(command.fill_value);
  out.I32(command.symbol);
  out.I32(command.limit_place);
  out.U8(static_cast<uint8_t>(command.dtype));
  out.String(command.label);
}

void Write(ByteWriter& out, const ProgramRegion& region) {
  out.U8(static_cast<uint8_t>(region.kind));
  out.I32(region.first_command);
  out.I32(region.command_count);
  out.I32(region.count_place);
  out.I32(region.iteration);
  out.I32(region.proceed_place);
  out.I32(region.trips);
}

void Write(ByteWriter& out, const ProgramSegment& segment) {
  out.String(segment.device_kind);
  out.I32(segment.first_command);
  out.I32(segment.command_count);
}

void Write(ByteWriter& out, const DimTable::Instruction& instruction) {
  out.U8(static_cast<uint8_t>(instruction.kind));
  out.I32(instruction.a);
  out.I32(instruction.b);
  out.I64(instruction.value);
}

void Write(ByteWriter& out, const Program::Check& check) {
  out.I32(check.place);
  out.String(check.message);
}

void Write(ByteWriter& out, const Program::IndexBound& bound) {
  out.I32(bound.input);
  out.I64(bound.limit);
  out.String(bound.reader);
}

void Write(ByteWriter& out, const Program::ValueSymbol& symbol) {
  out.I32(symbol.symbol);
  out.I32(symbol.input);
  out.I64(symbol.element);
}

void Write(ByteWriter& out, const std::string& text) { out.String(text); }

template <typename T>
void WriteList(ByteWriter& out, const std::vector<T>& list) {
  out.U32(static_cast<uint32_t>(list.size()));
  for (const T& item : list) Write(out, item);
}

// The least bytes an item takes, so that a count may be believed.
template <typename T>
constexpr size_t kBytesMin = 4;
template <>
constexpr size_t kBytesMin<DimTable::Instruction> = 1 + 4 + 4 + 8;
template <>
constexpr size_t kBytesMin<Program::Check> = 4 + 4;
template <>
constexpr size_t kBytesMin<Program::IndexBound> = 4 + 8 + 4;
template <>
constexpr size_t kBytesMin<ProgramDim> = 8 + 4;
template <>
constexpr size_t kBytesMin<ProgramTensor> = 4 + 1 + 4 + 4;
template <>
constexpr size_t kBytesMin<ProgramBuffer> = 1 + 4 + 4 + 8 + 8 + 4 + 4;
template <>
constexpr size_t kBytesMin<Digest> = 32;
template <>
constexpr size_t kBytesMin<ProgramSegment> = 4 + 4 + 4;
template <>
constexpr size_t kBytesMin<ProgramCommand> = 1 + 4 + 4 + 3 * 4 + 4 * 4 + 1 + 4 + 4 + 1 + 4;
template <>
constexpr size_t kBytesMin<ProgramRegion> = 1 + 6 * 4;
template <>
constexpr size_t kBytesMin<Program::ValueSymbol> = 4 + 4 + 8;

// Values past the last enumerator stay, for Verify to name.
template <typename E>
void ReadEnum(ByteReader& in, E& value) {
  value = static_cast<E>(in.U8());
}

void Read(ByteReader& in, std::string& text) { text = std::string(in.String()); }

void Read(ByteReader& in, int32_t& number) { number = in.I32(); }

void Read(ByteReader& in, Digest& digest) {
  const std::span<const std::byte> bytes = in.Bytes(digest.bytes.size());
  if (in.ok()) memcpy(digest.bytes.data(), bytes.data(), digest.bytes.size());
}

void Read(ByteReader& in, DimTable::Instruction& instruction) {
  ReadEnum(in, instruction.kind);
  instruction.a = in.I32();
  instruction.b = in.I32();
  instruction.value = in.I64();
}

void Read(ByteReader& in, Program::Check& check) {
  check.place = in.I32();
  Read(in, check.message);
}

void Read(ByteReader& in, Program::IndexBound& bound) {
  bound.input = in.I32();
  bound.limit = in.I64();
  Read(in, bound.reader);
}

void Read(ByteReader& in, Program::ValueSymbol& symbol) {
  symbol.symbol = in.I32();
  symbol.input = in.I32();
  symbol.element = in.I64();
}

void Read(ByteReader& in, ProgramRegion& region) {
  ReadEnum(in, region.kind);
  region.first_command = in.I32();
  region.command_count = in.I32();
  region.count_place = in.I32();
  region.iteration = in.I32();
  region.proceed_place = in.I32();
  region.trips = in.I32();
}

void Read(ByteReader& in, ProgramDim& dim) {
  dim.fixed = in.I64();
  dim.place = in.I32();
}

// Before ReadList, which calls them.
void Read(ByteReader& in, ProgramTensor& tensor);
void Read(ByteReader& in, ProgramBuffer& buffer);
void Read(ByteReader& in, ProgramSegment& segment);
void Read(ByteReader& in, ProgramCommand& command);

template <typename T>
void ReadList(ByteReader& in, std::vector<T>& list) {
  const uint32_t count = in.Count(kBytesMin<T>);
  list.resize(count);
  for (T& item : list) {
    Read(in, item);
    if (!in.ok()) return;
  }
}

void Read(ByteReader& in, ProgramTensor& tensor) {
  Read(in, tensor.name);
  ReadEnum(in, tensor.dtype);
  ReadList(in, tensor.dims);
  tensor.buffer = in.I32();
}

void Read(ByteReader& in, ProgramBuffer& buffer) {
  ReadEnum(in, buffer.kind);
  buffer.size_place = in.I32();
  buffer.index = in.I32();
  buffer.weight_offset = in.U64();
  buffer.weight_size = in.U64();
  buffer.first_command = in.I32();
  buffer.last_command = in.I32();
}

void Read(ByteReader& in, ProgramSegment& segment) {
  Read(in, segment.device_kind);
  segment.first_command = in.I32();
  segment.command_count = in.I32();
}

void Read(ByteReader& in, ProgramCommand& command) {
  ReadEnum(in, command.kind);
  command.artifact = in.I32();
  Read(in, command.entry);
  ReadList(in, command.buffers);
  ReadList(in, command.offsets);
  ReadList(in, command.dims);
  command.tasks_place = in.I32();
  command.scratch_place = in.I32();
  command.flops_place = in.I32();
  command.bytes_place = in.I32();
  command.fill_value = in.U8();
  command.symbol = in.I32();
  command.limit_place = in.I32();
  ReadEnum(in, command.dtype);
  Read(in, command.label);
}

}  // namespace

std::string Program::Serialize() const {
  std::string bytes;
  ByteWriter out(&bytes);
  out.Bytes(AsBytes(kMagic));
  out.U32(kProgramVersion);
  out.String(model_name);
  out.String(target);
  WriteList(out, symbols);
  WriteList(out, dims);
  WriteList(out, checks);
  WriteList(out, index_bounds);
  WriteList(out, value_symbols);
  WriteList(out, inputs);
  out.I32(states);
  WriteList(out, outputs);
  WriteList(out, buffers);
  WriteList(out, artifacts);
  Write(out, weights);
  out.U64(weights_size);
  WriteList(out, segments);
  WriteList(out, commands);
  WriteList(out, regions);
  out.String(batch_symbol);
  out.String(batch_reason);
  return bytes;
}

size_t Program::RequestSymbols() const {
  size_t late = 0;
  for (const ProgramRegion& region : regions) {
    late += (region.iteration >= 0 ? 1 : 0) + (region.trips >= 0 ? 1 : 0);
  }
  for (const ProgramCommand& command : commands) {
    late += command.kind == ProgramCommand::Kind::kRead ? 1 : 0;
  }
  return late > symbols.size() ? 0 : symbols.size() - late;
}

absl::StatusOr<Program> Program::Parse(std::span<const std::byte> bytes) {
  ByteReader in(bytes, "program");
  if (AsText(in.Bytes(kMagic.size())) != kMagic) {
    return absl::DataLossError("program: not a compiled program");
  }
  const uint32_t version = in.U32();
  if (in.ok() && version != kProgramVersion) {
    return absl::DataLossError(
        absl::StrCat("program version: got ", version, ", limit ", kProgramVersion));
  }
  Program program;
  Read(in, program.model_name);
  Read(in, program.target);
  ReadList(in, program.symbols);
  ReadList(in, program.dims);
  ReadList(in, program.checks);
  ReadList(in, program.index_bounds);
  ReadList(in, program.value_symbols);
  ReadList(in, program.inputs);
  program.states = in.I32();
  ReadList(in, program.outputs);
  ReadList(in, program.buffers);
  ReadList(in, program.artifacts);
  Read(in, program.weights);
  program.weights_size = in.U64();
  ReadList(in, program.segments);
  ReadList(in, program.commands);
  ReadList(in, program.regions);
  Read(in, program.batch_symbol);
  Read(in, program.batch_reason);
  in.ExpectEnd();
  if (!in.ok()) return absl::DataLossError(in.status().message());
  RETURN_IF_ERROR(program.Verify());
  return program;
}

}  // namespace stampmill
