// The loops, outermost first: task = (batch, block of rows, group of panels); panels; tiles of
// rows; all of k (block_tile.h). A panel stays in the first-level cache while the tiles of the rows
// pass over it. Tasks of the same rows follow each other, and pack them once.
//
// Rows that come as records are read where they are. Others are rounded to bytes as they are
// packed, by each thread that takes one of the tasks which share them.
#include "compiler/llvm/block_contraction_emitter.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/access.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/block_tile.h"
#include "compiler/llvm/expr_emitter.h"
#include "compiler/llvm/row_packer.h"
#include "graph/block_layout.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace stampmill {
namespace {

using Dot = BlockSchedule::Dot;

// Fewer go better in high tiles of one panel.
constexpr int64_t kRowsForPairs = 24;
// A tile that alone passes over a panel waits for memory, and fetches so far ahead of itself.
constexpr int64_t kAheadBytes = 4096;

// One plain load of neighbours along k: rows lie in memory.
bool HasRowsInMemory(const Contraction& contraction) {
  const Expr& a = contraction.a;
  if (a.op() != ExprOp::kLoad || contraction.k.size() != 1) return false;
  const auto k_axis = static_cast<int32_t>(contraction.batch.size() + contraction.m.size());
  bool places_are_loaded = false;
  a.Visit([&](const Expr& node) {
    places_are_loaded = places_are_loaded || (IsLoad(node) && node.id() != a.id());
  });
  return !places_are_loaded && WalkOf(a.operands(), k_axis) == AxisWalk::kUnit;
}

class BlockContractionEmitter {
 public:
  BlockContractionEmitter(KernelFunction& kernel, const Contraction& contraction,
                          const Target& target);
  void Run();

 private:
  using Values = Ir::Values;

  struct Tile {
    BlockTileShape shape;
    llvm::Function* function = nullptr;
  };
  Tile MakeTile(int64_t rows, int64_t panels);

  void EmitTask(llvm::Value* task);
  void EmitRows(llvm::Value* task, llvm::Value* group);
  void PackRows();
  void PackRow(RowPacker& packer, llvm::Value* row, const Values& m);
  void RoundGroup(llvm::Value* source, llvm::Value* record);
  llvm::Value* GreatestMagnitude(const Values& numbers);
  llvm::Value* RoundToIntegers(llvm::Value* numbers);
  void StoreBytes(llvm::Value* integers, llvm::Value* record, int64_t at);
  void StoreExtras(const Values& integers, llvm::Value* scale, llvm::Value* record);

  void EmitPanels();
  llvm::Value* EmitWideTiles(llvm::Value* panel);
  void EmitTiles(llvm::Value* panel, llvm::Value* first);
  void CallTile(const Tile& tile, llvm::Value* panel, llvm::Value* row);

  void EmitEpilogue(llvm::Value* panel, llvm::Value* row, const Tile& tile);
  void EpiloguePanel(const Scope& row, llvm::Value* first_column, llvm::Value* sums);
  void EpilogueLanes(const Scope& row, llvm::Value* column, llvm::Value* sums, int64_t lanes);

  Scope ScopeAt(const Values& m, size_t axes);
  llvm::Value* ByteAt(llvm::Value* base, llvm::Value* offset) {
    return ir_.b().CreateGEP(ir_.b().getInt8Ty(), base, offset);
  }
  llvm::Value* PanelAddress(llvm::Value* panel);
  // Of a row of the task, packed.
  llvm::Value* RowAddress(llvm::Value* row) {
    if (!contraction_.of_records()) {
      return ByteAt(rows_at_, ir_.Mul(row, ir_.Int(schedule_.row_bytes)));
    }
    row = ir_.Add(ir_.Add(ir_.Mul(batch_, kernel_.Dim(schedule_.m)), first_row_), row);
    return ByteAt(operands_[static_cast<size_t>(contraction_.a.index())].address,
                  ir_.Mul(row, ir_.Int(schedule_.row_bytes)));
  }
  // Of f32 in one register.
  int64_t Lanes() const { return ir_.facts().vector_bytes / 4; }

  KernelFunction& kernel_;
  Ir& ir_;
  const Contraction& contraction_;
  BlockSchedule schedule_;
  BlockLayout layout_;
  std::vector<BufferView> operands_;
  BufferView output_;
  std::vector<Expr> output_coordinates_;
  std::vector<Tile> tiles_;  // of one panel, descending heights
  std::optional<Tile> wide_;
  Values batch_extents_, m_extents_;
  int64_t k_ = 0;
  int64_t panel_bytes_ = 0;
  llvm::Value* n_ = nullptr;
  llvm::Value* panels_ = nullptr;
  // Parts of scratch.
  llvm::Value* rows_at_ = nullptr;
  llvm::Value* line_at_ = nullptr;
  llvm::Value* tile_at_ = nullptr;
  // Of the current task.
  llvm::Value* batch_ = nullptr;
  Values batch_at_;
  llvm::Value* first_row_ = nullptr;
  llvm::Value* rows_ = nullptr;
  llvm::Value* first_panel_ = nullptr;
  llvm::Value* task_panels_ = nullptr;
};

BlockContractionEmitter::BlockContractionEmitter(KernelFunction& kernel,
                                                 const Contraction& contraction,
                                                 const Target& target)
    : kernel_(kernel),
      ir_(kernel.ir()),
      contraction_(contraction),
      schedule_(ScheduleBlocks(contraction, target)),
      layout_(LayoutOf(*contraction.blocks, contraction.panel)) {
  for (size_t n = 0; n < contraction.operands.size(); ++n) {
    operands_.push_back(kernel.Buffer(static_cast<int64_t>(n), contraction.operands[n]));
  }
  output_ = kernel.Buffer(static_cast<int64_t>(contraction.operands.size()), contraction.output);
  output_.constant = false;
  output_coordinates_ = contraction.output_coordinates;
  if (output_coordinates_.empty()) {
    for (size_t n = 0; n < contraction.batch.size() + contraction.m.size() + 1; ++n) {
      output_coordinates_.push_back(Expr::Coord(static_cast<int32_t>(n)));
    }
  }
  batch_extents_ = kernel.Dims(contraction.batch);
  m_extents_ = kernel.Dims(contraction.m);
  k_ = *ElementCount(contraction.k).constant();
  panel_bytes_ = k_ / layout_.facts().elements * layout_.block_bytes;
  n_ = kernel.Dim(contraction.n);
  panels_ = kernel.Dim(schedule_.panels);
  rows_at_ = kernel.Scratch();
  ir_.AtEntry([&] {
    line_at_ = ByteAt(rows_at_, ir_.Int(schedule_.rows_bytes));
    tile_at_ = ByteAt(line_at_, ir_.Int(schedule_.line_bytes));
  });
  for (const int64_t rows : schedule_.heights) tiles_.push_back(MakeTile(rows, 1));
  if (schedule_.wide_rows > 0) wide_ = MakeTile(schedule_.wide_rows, 2);
}

BlockContractionEmitter::Tile BlockContractionEmitter::MakeTile(int64_t rows, int64_t panels) {
  const std::string name =
      absl::StrCat(kernel_.function()->getName().str(), "_tile", rows, "x", panels);
  const BlockTileShape shape = {.rows = rows, .panels = panels};
  return {.shape = shape, .function = EmitBlockTile(ir_, name, layout_, schedule_, k_, shape)};
}

void BlockContractionEmitter::Run() {
  kernel_.ForEachTask([&](llvm::Value* task) { EmitTask(task); });
}

void BlockContractionEmitter::EmitTask(llvm::Value* task) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* per_task = kernel_.Dim(schedule_.panels_per_task);
  llvm::Value* task_rows = kernel_.Dim(schedule_.rows_per_task);
  const Values at =
      ir_.Decompose(task, {kernel_.Dim(schedule_.batches), kernel_.Dim(schedule_.row_blocks),
                           kernel_.Dim(schedule_.panel_groups)});
  batch_ = at[0];
  batch_at_ = ir_.Decompose(batch_, batch_extents_);
  first_row_ = ir_.Mul(at[1], task_rows);
  llvm::Value* all_rows = kernel_.Dim(schedule_.m);
  if (contraction_.rows.valid()) {
    const Scope scope = ScopeAt({}, batch_at_.size());
    all_rows = ir_.Min(all_rows, ExprEmitter(scope).Emit(contraction_.rows).value);
  }
  rows_ = ir_.Min(task_rows, ir_.Sub(all_rows, first_row_));
  first_panel_ = ir_.Mul(at[2], per_task);
  task_panels_ = ir_.Min(per_task, ir_.Sub(panels_, first_panel_));
  if (!contraction_.rows.valid()) {
    EmitRows(task, at[2]);
    return;
  }
  ir_.If(b.CreateICmpSGT(rows_, ir_.Int(0)), [&] { EmitRows(task, at[2]); });
}

void BlockContractionEmitter::EmitRows(llvm::Value* task, llvm::Value* group) {
  llvm::IRBuilder<>& b = ir_.b();
  if (!contraction_.of_records()) {
    // Unless the task before has left them.
    llvm::Value* is_first = b.CreateICmpEQ(task, kernel_.function()->getArg(1));
    llvm::Value* is_new = b.CreateICmpEQ(group, ir_.Int(0));
    ir_.If(b.CreateOr(is_first, is_new), [&] { PackRows(); });
  }
  EmitPanels();
}

// --- Rows ---

void BlockContractionEmitter::PackRows() {
  RowPacker packer(kernel_, contraction_, contraction_.a, Lanes());
  ir_.Walk(first_row_, ir_.Add(first_row_, rows_), m_extents_,
           [&](llvm::Value* row, const Values& m) { PackRow(packer, row, m); });
}

void BlockContractionEmitter::PackRow(RowPacker& packer, llvm::Value* row, const Values& m) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* packed = RowAddress(ir_.Sub(row, first_row_));
  const size_t axes = batch_extents_.size() + m_extents_.size();
  llvm::Value* line = schedule_.dot == Dot::kExact ? packed : line_at_;
  if (schedule_.dot != Dot::kExact && HasRowsInMemory(contraction_)) {
    Scope scope = ScopeAt(m, axes + 1);
    scope.coordinates.back() = {ir_.Int(0)};
    line = ExprEmitter(scope).AddressOf(contraction_.a);
  } else {
    packer.Pack(ScopeAt(m, axes), [&](llvm::Value* k, llvm::Value* values, int64_t) {
      b.CreateAlignedStore(values, b.CreateGEP(b.getFloatTy(), line, k), llvm::Align(4));
    });
  }
  if (schedule_.dot == Dot::kExact) return;
  ir_.For(ir_.Int(0), ir_.Int(k_ / kBlockGroup), 1, [&](llvm::Value* group) {
    RoundGroup(ByteAt(line, ir_.Mul(group, ir_.Int(4 * kBlockGroup))),
               ByteAt(packed, ir_.Mul(group, ir_.Int(schedule_.record_bytes))));
  });
}

// 32 numbers become a record. What is no finite number after scaling becomes the least integer,
// whose low byte is 0.
void BlockContractionEmitter::RoundGroup(llvm::Value* source, llvm::Value* record) {
  llvm::IRBuilder<>& b = ir_.b();
  Values numbers, integers;
  for (int64_t at = 0; at < kBlockGroup; at += Lanes()) {
    numbers.push_back(b.CreateAlignedLoad(Ir::Vector(b.getFloatTy(), Lanes()),
                                          ByteAt(source, ir_.Int(4 * at)), llvm::Align(1)));
  }
  llvm::Value* most = GreatestMagnitude(numbers);
  llvm::Value* limit = llvm::ConstantFP::get(b.getFloatTy(), 127);
  llvm::Value* scale = b.CreateFDiv(most, limit);
  llvm::Value* factor = ir_.Splat(b.CreateFDiv(limit, most), Lanes());
  for (size_t n = 0; n < numbers.size(); ++n) {
    llvm::Value* rounded = RoundToIntegers(b.CreateFMul(numbers[n], factor));
    llvm::Type* bytes = Ir::Vector(b.getInt8Ty(), Lanes());
    rounded = b.CreateTrunc(rounded, bytes);
    StoreBytes(rounded, record, static_cast<int64_t>(n) * Lanes());
    integers.push_back(b.CreateSExt(rounded, Ir::Vector(b.getInt32Ty(), Lanes())));
  }
  const int64_t scale_at = kBlockGroup * (schedule_.dot == Dot::kPairs ? 2 : 1);
  b.CreateAlignedStore(scale, ByteAt(record, ir_.Int(scale_at)), llvm::Align(4));
  StoreExtras(integers, scale, ByteAt(record, ir_.Int(scale_at + 4)));
}

// As integers the bits of magnitudes are in order, what is no number last.
llvm::Value* BlockContractionEmitter::GreatestMagnitude(const Values& numbers) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Type* type = Ir::Vector(b.getInt32Ty(), Lanes());
  llvm::Value* most = nullptr;
  for (llvm::Value* number : numbers) {
    llvm::Value* magnitude =
        b.CreateAnd(b.CreateBitCast(number, type), llvm::ConstantInt::get(type, 0x7fffffff));
    most = most == nullptr ? magnitude
                           : b.CreateBinaryIntrinsic(llvm::Intrinsic::umax, most, magnitude);
  }
  return b.CreateBitCast(b.CreateIntMaxReduce(most, false), b.getFloatTy());
}

// To nearest, ties to even.
llvm::Value* BlockContractionEmitter::RoundToIntegers(llvm::Value* numbers) {
  llvm::IRBuilder<>& b = ir_.b();
  if (Lanes() == 16) {
    llvm::Type* type = Ir::Vector(b.getInt32Ty(), 16);
    return b.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_mask_cvtps2dq_512, {},
        {numbers, llvm::Constant::getNullValue(type), b.getInt16(0xffff), b.getInt32(4)});
  }
  return b.CreateIntrinsic(
      Lanes() == 8 ? llvm::Intrinsic::x86_avx_cvt_ps2dq_256 : llvm::Intrinsic::x86_sse2_cvtps2dq,
      {}, {numbers});
}

void BlockContractionEmitter::StoreBytes(llvm::Value* bytes, llvm::Value* record, int64_t at) {
  llvm::IRBuilder<>& b = ir_.b();
  if (schedule_.dot != Dot::kPairs) {
    b.CreateAlignedStore(bytes, ByteAt(record, ir_.Int(at)), llvm::Align(1));
    return;
  }
  std::vector<int> order;
  for (int lane = 0; lane < static_cast<int>(Lanes()); ++lane) {
    constexpr int kPlaces[] = {0, 2, 1, 3};
    order.push_back(lane / 4 * 4 + kPlaces[lane % 4]);
  }
  llvm::Value* wide =
      b.CreateSExt(b.CreateShuffleVector(bytes, order), Ir::Vector(b.getInt16Ty(), Lanes()));
  b.CreateAlignedStore(wide, ByteAt(record, ir_.Int(2 * at)), llvm::Align(2));
}

// What the runs' zeros or minimums are multiplied by.
void BlockContractionEmitter::StoreExtras(const Values& integers, llvm::Value* scale,
                                          llvm::Value* target) {
  llvm::IRBuilder<>& b = ir_.b();
  const BlockFacts& facts = layout_.facts();
  if (facts.zero == 0 && !facts.has_minimum) return;
  const int64_t vectors = facts.run / Lanes();
  for (int64_t run = 0; run < layout_.runs_per_group(); ++run) {
    llvm::Value* sum = integers[static_cast<size_t>(run * vectors)];
    for (int64_t n = 1; n < vectors; ++n) {
      sum = b.CreateAdd(sum, integers[static_cast<size_t>(run * vectors + n)]);
    }
    sum = b.CreateAddReduce(sum);
    llvm::Value* extra = facts.has_minimum
                             ? b.CreateFMul(scale, b.CreateSIToFP(sum, b.getFloatTy()))
                             : b.CreateMul(sum, b.getInt32(static_cast<uint32_t>(-facts.zero)));
    b.CreateAlignedStore(extra, ByteAt(target, ir_.Int(4 * run)), llvm::Align(4));
  }
}

// --- Tiles ---

void BlockContractionEmitter::EmitPanels() {
  if (!wide_.has_value()) {
    ir_.For(ir_.Int(0), task_panels_, 1, [&](llvm::Value* panel) { EmitTiles(panel, ir_.Int(0)); });
    return;
  }
  llvm::IRBuilder<>& b = ir_.b();
  // Pairs of panels for as many rows as fill their tile, and the rows that are left one by one.
  llvm::Value* has_many = b.CreateICmpSGE(rows_, ir_.Int(kRowsForPairs));
  llvm::Value* paired = b.CreateAnd(task_panels_, ir_.Int(-2));
  paired = b.CreateSelect(has_many, paired, ir_.Int(0));
  ir_.For(ir_.Int(0), paired, 2, [&](llvm::Value* panel) {
    llvm::Value* row = EmitWideTiles(panel);
    ir_.For(ir_.Int(0), ir_.Int(2), 1,
            [&](llvm::Value* second) { EmitTiles(ir_.Add(panel, second), row); });
  });
  ir_.For(paired, task_panels_, 1, [&](llvm::Value* panel) { EmitTiles(panel, ir_.Int(0)); });
}

// Returns the first row that is left.
llvm::Value* BlockContractionEmitter::EmitWideTiles(llvm::Value* panel) {
  llvm::IRBuilder<>& b = ir_.b();
  const int64_t height = schedule_.wide_rows;
  llvm::Value* rest = b.CreateURem(rows_, ir_.Int(height));
  llvm::Value* end = ir_.Sub(rows_, rest);
  ir_.For(ir_.Int(0), end, height, [&](llvm::Value* row) {
    CallTile(*wide_, panel, row);
    EmitEpilogue(panel, row, *wide_);
  });
  return end;
}

void BlockContractionEmitter::EmitTiles(llvm::Value* panel, llvm::Value* first) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* row = first;
  for (const Tile& tile : tiles_) {
    const int64_t height = tile.shape.rows;
    llvm::Value* left = ir_.Sub(rows_, row);
    llvm::Value* end = ir_.Add(row, b.CreateAnd(left, ir_.Int(-height)));
    ir_.For(row, end, height, [&](llvm::Value* at) {
      CallTile(tile, panel, at);
      EmitEpilogue(panel, at, tile);
    });
    row = end;
  }
}

llvm::Value* BlockContractionEmitter::PanelAddress(llvm::Value* panel) {
  llvm::Value* number = ir_.Add(first_panel_, panel);
  if (contraction_.b_batched) number = ir_.Add(ir_.Mul(batch_, panels_), number);
  return ByteAt(operands_[static_cast<size_t>(contraction_.b)].address,
                ir_.Mul(number, ir_.Int(panel_bytes_)));
}

// The last tile of the rows fetches the panels after these; an only one what it reads later.
void BlockContractionEmitter::CallTile(const Tile& tile, llvm::Value* panel, llvm::Value* row) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* address = PanelAddress(panel);
  llvm::Value* is_only = b.CreateICmpEQ(row, ir_.Int(0));
  const int64_t whole = tile.shape.panels * panel_bytes_;
  llvm::Value* distance =
      b.CreateSelect(is_only, ir_.Int(std::min(whole, kAheadBytes)), ir_.Int(whole));
  llvm::Value* following = ByteAt(address, distance);
  llvm::Value* is_last = b.CreateICmpSGE(ir_.Add(row, ir_.Int(tile.shape.rows)), rows_);
  llvm::Value* ahead =
      b.CreateSelect(is_last, following, llvm::ConstantPointerNull::get(b.getPtrTy()));
  b.CreateCall(tile.function, {RowAddress(row), address, ahead, tile_at_});
}

Scope BlockContractionEmitter::ScopeAt(const Values& m, size_t axes) {
  Scope scope;
  scope.kernel = &kernel_;
  scope.operands = operands_;
  scope.lanes = 1;
  for (llvm::Value* at : batch_at_) scope.coordinates.push_back({at});
  for (llvm::Value* at : m) scope.coordinates.push_back({at});
  scope.coordinates.resize(axes);
  return scope;
}

// --- Epilogue ---

void BlockContractionEmitter::EmitEpilogue(llvm::Value* panel, llvm::Value* row, const Tile& tile) {
  const Values at = ir_.Decompose(ir_.Add(first_row_, row), m_extents_);
  llvm::Value* column = ir_.Mul(ir_.Add(first_panel_, panel), ir_.Int(contraction_.panel));
  ir_.For(ir_.Int(0), ir_.Int(tile.shape.rows), 1, at, [&](llvm::Value* number, const Values& m) {
    const Scope scope = ScopeAt(m, batch_extents_.size() + m_extents_.size() + 1);
    const int64_t row_bytes = tile.shape.panels * contraction_.panel * 4;
    for (int64_t n = 0; n < tile.shape.panels; ++n) {
      llvm::Value* place =
          ir_.Add(ir_.Mul(number, ir_.Int(row_bytes)), ir_.Int(n * contraction_.panel * 4));
      EpiloguePanel(scope, ir_.Add(column, ir_.Int(n * contraction_.panel)),
                    ByteAt(tile_at_, place));
    }
    return ir_.Next(m, m_extents_);
  });
}

// The columns of one panel, or as many as there are.
void BlockContractionEmitter::EpiloguePanel(const Scope& row, llvm::Value* first_column,
                                            llvm::Value* sums) {
  const int64_t lanes = std::min(Lanes(), contraction_.panel);
  const auto whole = [&] {
    for (int64_t at = 0; at < contraction_.panel; at += lanes) {
      EpilogueLanes(row, ir_.Add(first_column, ir_.Int(at)), ByteAt(sums, ir_.Int(4 * at)), lanes);
    }
  };
  const std::optional<int64_t> n = contraction_.n.constant();
  if (n.has_value() && *n % contraction_.panel == 0) {
    whole();
    return;
  }
  llvm::Value* width = ir_.Sub(n_, first_column);
  ir_.If(ir_.b().CreateICmpSGE(width, ir_.Int(contraction_.panel)), whole, [&] {
    ir_.For(ir_.Int(0), width, 1, [&](llvm::Value* at) {
      EpilogueLanes(row, ir_.Add(first_column, at), ByteAt(sums, ir_.Mul(at, ir_.Int(4))), 1);
    });
  });
}

void BlockContractionEmitter::EpilogueLanes(const Scope& row, llvm::Value* column,
                                            llvm::Value* sums, int64_t lanes) {
  llvm::IRBuilder<>& b = ir_.b();
  Scope scope = row;
  scope.lanes = lanes;
  scope.coordinates.back() = {column, lanes == 1 ? nullptr : ir_.Int(1)};
  scope.accumulators = {
      {b.CreateAlignedLoad(Ir::Vector(b.getFloatTy(), lanes), sums, llvm::Align(4))}};
  ExprEmitter emitter(scope);
  const Lane value = emitter.Emit(contraction_.result);
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : output_coordinates_) {
    coordinates.push_back(emitter.Emit(coordinate));
  }
  emitter.Store(output_, coordinates, value);
}

}  // namespace

void EmitBlockContraction(KernelFunction& kernel, const Contraction& contraction,
                          const Target& target) {
  BlockContractionEmitter(kernel, contraction, target).Run();
}

}  // namespace stampmill
