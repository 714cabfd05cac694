// The loops, outermost first: task = (batch, group of panels, block of rows); panels; tiles of
// rows; all of k. Sums stay in registers, so a tile writes them once, for its epilogue.
//
// With VNNI a step multiplies four neighbours along k, a row's as one broadcast word by a vector of
// columns. Other targets have an exact product only of pairs of 16 bits. There the four bytes of a
// column are taken apart, those at even places and those at odd ones, and rows are widened
// beforehand in the same order: 0, 2, 1, 3. For many rows a panel is taken apart once, into
// scratch; for few in registers, by each tile.
#include "compiler/llvm/byte_contraction_emitter.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/expr_emitter.h"
#include "compiler/llvm/row_packer.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace stampmill {
namespace {

constexpr int64_t kSmallTileRows = 4;
// So many rows pay for taking a panel apart.
constexpr int64_t kRowsToTakeApart = 8;
// Chains of sums in a tile of one row: one would wait for itself.
constexpr int64_t kChains = 4;

class ByteContractionEmitter {
 public:
  ByteContractionEmitter(KernelFunction& kernel, const Contraction& contraction,
                         const Target& target);
  void Run();

 private:
  using Values = Ir::Values;

  struct Tile {
    int64_t rows = 0;
    int64_t addresses = 1;  // how many of its rows come with an address of their own
    bool apart = false;     // the bytes of its panel have been taken apart
    llvm::Function* function = nullptr;
  };
  Tile MakeTile(int64_t rows, int64_t addresses, bool apart);
  void EmitTileBody(Ir& ir, const Tile& tile);
  llvm::Value* LoadColumns(Ir& ir, llvm::Value* panel, llvm::Value* step, int64_t part);
  void AddProducts(Ir& ir, Values& sums, const Tile& tile, const Values& rows, llvm::Value* panel,
                   llvm::Value* step);
  void AddFours(Ir& ir, Values& sums, const Values& rows, llvm::Value* panel, llvm::Value* step);
  Values LoadApart(Ir& ir, const Tile& tile, llvm::Value* panel, llvm::Value* step);
  llvm::Value* RowWord(Ir& ir, llvm::Value* row, llvm::Value* offset);

  void EmitTask(llvm::Value* task);
  void PrepareRows();
  llvm::Value* SourceRow(llvm::Value* row);
  void WidenRow(llvm::Value* source, llvm::Value* target);
  void SumRow(llvm::Value* source, llvm::Value* target);
  void TakeApart(llvm::Value* bytes);
  void EmitTiles(llvm::Value* panel);
  void CallTiles(llvm::Value* row, llvm::Value* left, llvm::Value* valid, llvm::Value* columns);
  void CallTile(const Tile& tile, llvm::Value* row, llvm::Value* valid, llvm::Value* columns);
  llvm::Value* RowAddress(llvm::Value* row);

  void EmitEpilogue(llvm::Value* panel, llvm::Value* row, llvm::Value* valid);
  int64_t RowsTogether() const;
  llvm::Value* SumsOf(llvm::Value* number);
  Scope EpilogueScope(llvm::Value* row, llvm::Value* number, const Values& m);
  Values EpilogueTogether(llvm::Value* row, llvm::Value* number, Values m, int64_t rows,
                          llvm::Value* first_column);
  void EpilogueRow(const Scope& row, llvm::Value* first_column, llvm::Value* width,
                   llvm::Value* sums);
  void EpilogueLanes(const Scope& row, llvm::Value* first_column, llvm::Value* at,
                     llvm::Value* sums, int64_t lanes);
  Scope LanesOf(const Scope& row, llvm::Value* first_column, llvm::Value* at, llvm::Value* sums,
                int64_t lanes);
  void StoreResult(ExprEmitter& emitter);

  Scope ScopeAt(const Values& m, size_t axes);
  llvm::Value* ByteAt(llvm::Value* base, llvm::Value* offset) {
    return ir_.b().CreateGEP(ir_.b().getInt8Ty(), base, offset);
  }
  int64_t StepBytes() const { return contraction_.panel * kByteGroup; }
  int64_t Lanes() const { return std::min(schedule_.lanes, contraction_.panel); }

  KernelFunction& kernel_;
  Ir& ir_;
  const Contraction& contraction_;
  ByteSchedule schedule_;
  std::vector<BufferView> operands_;
  BufferView output_;
  std::vector<Expr> output_coordinates_;
  std::vector<Tile> tiles_;  // descending heights; the last two are the small tile and one row
  std::vector<Tile> small_tiles_;  // for few rows, where `tiles_` want panels taken apart
  Values batch_extents_, m_extents_;
  llvm::Value* k_ = nullptr;
  llvm::Value* steps_ = nullptr;  // groups of k
  llvm::Value* n_ = nullptr;
  llvm::Value* panels_ = nullptr;
  llvm::Value* row_bytes_ = nullptr;
  llvm::Value* distance_ = nullptr;  // between the rows that tiles read
  // Parts of scratch.
  llvm::Value* rows_at_ = nullptr;
  llvm::Value* line_at_ = nullptr;
  llvm::Value* sums_at_ = nullptr;
  llvm::Value* tile_at_ = nullptr;
  llvm::Value* apart_at_ = nullptr;
  // Of the current task.
  llvm::Value* batch_ = nullptr;
  Values batch_at_;
  llvm::Value* first_row_ = nullptr;
  llvm::Value* takes_apart_ = nullptr;
  llvm::Value* rows_ = nullptr;
  llvm::Value* first_panel_ = nullptr;
  llvm::Value* task_panels_ = nullptr;
};

ByteContractionEmitter::ByteContractionEmitter(KernelFunction& kernel,
                                               const Contraction& contraction, const Target& target)
    : kernel_(kernel),
      ir_(kernel.ir()),
      contraction_(contraction),
      schedule_(ScheduleBytes(contraction, target)) {
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
  k_ = kernel.Dim(schedule_.k);
  steps_ = kernel.Dim(CeilDiv(schedule_.k, kByteGroup));
  n_ = kernel.Dim(contraction.n);
  panels_ = kernel.Dim(schedule_.panels);
  row_bytes_ = kernel.Dim(schedule_.row_bytes);
  const bool in_place = schedule_.direct_a && schedule_.fours;
  distance_ = in_place ? ir_.Int(schedule_.row_distance) : row_bytes_;
  rows_at_ = kernel.Scratch();
  llvm::Value* rows_bytes = kernel.Dim(schedule_.rows_bytes);
  llvm::Value* line_bytes = kernel.Dim(schedule_.line_bytes);
  ir_.AtEntry([&] {
    line_at_ = ByteAt(rows_at_, rows_bytes);
    sums_at_ = ByteAt(line_at_, line_bytes);
    tile_at_ = ByteAt(sums_at_, ir_.Int(schedule_.sums_bytes));
    apart_at_ = ByteAt(tile_at_, ir_.Int(schedule_.tile_bytes));
  });
  const bool apart = schedule_.takes_apart;
  tiles_.push_back(MakeTile(schedule_.tile_rows, 1, apart));
  if (schedule_.tile_rows > 8) tiles_.push_back(MakeTile(8, 1, apart));
  tiles_.push_back(MakeTile(kSmallTileRows, kSmallTileRows, apart));
  tiles_.push_back(MakeTile(1, 1, apart));
  if (!apart) return;
  small_tiles_.push_back(MakeTile(kSmallTileRows, kSmallTileRows, false));
  small_tiles_.push_back(MakeTile(1, 1, false));
}

// --- Tiles ---

// void tile(a..., distance, panel, steps, sums): sums[row][panel] = a[row][k] * b[k][panel].
ByteContractionEmitter::Tile ByteContractionEmitter::MakeTile(int64_t rows, int64_t addresses,
                                                              bool apart) {
  llvm::Type* pointer = ir_.b().getPtrTy();
  llvm::Type* i64 = ir_.b().getInt64Ty();
  std::vector<llvm::Type*> parameters(static_cast<size_t>(addresses), pointer);
  parameters.insert(parameters.end(), {i64, pointer, i64, pointer});
  auto* type = llvm::FunctionType::get(ir_.b().getVoidTy(), parameters, false);
  auto* function = llvm::Function::Create(
      type, llvm::GlobalValue::InternalLinkage,
      absl::StrCat(kernel_.function()->getName().str(), apart ? "_apart" : "_bytes", rows),
      ir_.module());
  function->addFnAttr(llvm::Attribute::NoInline);
  for (llvm::Argument& argument : function->args()) {
    if (argument.getType()->isPointerTy()) argument.addAttr(llvm::Attribute::NoCapture);
  }
  // The sums are scratch: nothing else is written, and nobody else reads them meanwhile.
  function->getArg(static_cast<unsigned>(addresses) + 3)->addAttr(llvm::Attribute::NoAlias);
  Tile tile = {rows, addresses, apart, function};
  Ir body(function, ir_.facts());
  EmitTileBody(body, tile);
  return tile;
}

void ByteContractionEmitter::EmitTileBody(Ir& ir, const Tile& tile) {
  llvm::IRBuilder<>& b = ir.b();
  const auto first = static_cast<unsigned>(tile.addresses);
  // A constant is better known within the tile.
  llvm::Value* distance =
      llvm::isa<llvm::ConstantInt>(distance_) ? distance_ : tile.function->getArg(first);
  llvm::Value* panel = tile.function->getArg(first + 1);
  llvm::Value* steps = tile.function->getArg(first + 2);
  llvm::Value* out = tile.function->getArg(first + 3);
  const int64_t vectors = contraction_.panel / Lanes();
  llvm::Type* vector = Ir::Vector(b.getInt32Ty(), Lanes());
  Values bases;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const bool own = tile.addresses > 1;
    llvm::Value* base = tile.function->getArg(own ? static_cast<unsigned>(row) : 0);
    bases.push_back(own ? base : b.CreateGEP(b.getInt8Ty(), base, ir.Mul(distance, ir.Int(row))));
  }
  const int64_t total = tile.rows * vectors;
  const int64_t chains = tile.rows == 1 ? kChains : 1;
  // Pairs are added where they are made: more steps in one turn would only tempt the compiler to
  // gather their sums, for which there are no registers.
  const int64_t unrolled = tile.rows == 1 ? kChains : schedule_.fours ? 2 : 1;
  llvm::Value* rest = b.CreateAnd(steps, ir.Int(unrolled - 1));
  llvm::Value* whole = ir.Sub(steps, rest);
  Values sums(static_cast<size_t>(total * chains), llvm::Constant::getNullValue(vector));
  auto one_step = [&](llvm::Value* step, const Values& now, int64_t chain) {
    const auto begin = now.begin() + chain * total;
    Values part(begin, begin + total);
    AddProducts(ir, part, tile, bases, panel, step);
    Values all = now;
    std::copy(part.begin(), part.end(), all.begin() + chain * total);
    return all;
  };
  sums = ir.For(ir.Int(0), whole, unrolled, sums, [&](llvm::Value* step, const Values& now) {
    Values result = now;
    for (int64_t n = 0; n < unrolled; ++n) {
      result = one_step(ir.Add(step, ir.Int(n)), result, n % chains);
    }
    return result;
  });
  sums = ir.For(whole, steps, 1, sums,
                [&](llvm::Value* step, const Values& now) { return one_step(step, now, 0); });
  for (int64_t n = 0; n < total; ++n) {
    llvm::Value* sum = sums[static_cast<size_t>(n)];
    for (int64_t chain = 1; chain < chains; ++chain) {
      sum = b.CreateAdd(sum, sums[static_cast<size_t>(chain * total + n)]);
    }
    const int64_t at = n / vectors * contraction_.panel + n % vectors * Lanes();
    b.CreateAlignedStore(sum, b.CreateGEP(b.getInt32Ty(), out, ir.Int(at)), llvm::Align(4));
  }
  b.CreateRetVoid();
}

// Four bytes of each of Lanes() columns.
llvm::Value* ByteContractionEmitter::LoadColumns(Ir& ir, llvm::Value* panel, llvm::Value* step,
                                                 int64_t part) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Value* offset =
      ir.Add(ir.Mul(step, ir.Int(StepBytes())), ir.Int(part * Lanes() * kByteGroup));
  return b.CreateAlignedLoad(Ir::Vector(b.getInt32Ty(), Lanes()),
                             b.CreateGEP(b.getInt8Ty(), panel, offset), llvm::Align(1));
}

// The four bytes of each column as 16 bits: those at even places of all columns, then the others.
ByteContractionEmitter::Values ByteContractionEmitter::LoadApart(Ir& ir, const Tile& tile,
                                                                 llvm::Value* panel,
                                                                 llvm::Value* step) {
  llvm::IRBuilder<>& b = ir.b();
  const int64_t vectors = contraction_.panel / Lanes();
  llvm::Type* halves = Ir::Vector(b.getInt16Ty(), 2 * Lanes());
  Values even, odd;
  for (int64_t part = 0; part < vectors; ++part) {
    if (!tile.apart) {
      llvm::Constant* eight = llvm::ConstantInt::get(halves, 8);
      llvm::Value* bytes = b.CreateBitCast(LoadColumns(ir, panel, step, part), halves);
      even.push_back(b.CreateAShr(b.CreateShl(bytes, eight), eight));
      odd.push_back(b.CreateAShr(bytes, eight));
      continue;
    }
    auto load = [&](int64_t number) {
      llvm::Value* offset =
          ir.Add(ir.Mul(step, ir.Int(2 * StepBytes())), ir.Int(number * Lanes() * kByteGroup));
      return b.CreateAlignedLoad(halves, b.CreateGEP(b.getInt8Ty(), panel, offset), llvm::Align(1));
    };
    even.push_back(load(part));
    odd.push_back(load(vectors + part));
  }
  even.insert(even.end(), odd.begin(), odd.end());
  return even;
}

void ByteContractionEmitter::AddFours(Ir& ir, Values& sums, const Values& rows, llvm::Value* panel,
                                      llvm::Value* step) {
  llvm::IRBuilder<>& b = ir.b();
  const int64_t vectors = contraction_.panel / Lanes();
  Values columns;
  for (int64_t part = 0; part < vectors; ++part) {
    columns.push_back(LoadColumns(ir, panel, step, part));
  }
  llvm::Value* offset = ir.Mul(step, ir.Int(kByteGroup));
  for (size_t row = 0; row < rows.size(); ++row) {
    llvm::Value* a = RowWord(ir, rows[row], offset);
    for (int64_t part = 0; part < vectors; ++part) {
      llvm::Value*& sum = sums[row * static_cast<size_t>(vectors) + static_cast<size_t>(part)];
      sum = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512_vpdpbusd_512, {},
                              {sum, a, columns[static_cast<size_t>(part)]});
    }
  }
}

// Four bytes of a row, for all columns.
llvm::Value* ByteContractionEmitter::RowWord(Ir& ir, llvm::Value* row, llvm::Value* offset) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Value* word =
      b.CreateAlignedLoad(b.getInt32Ty(), b.CreateGEP(b.getInt8Ty(), row, offset), llvm::Align(1));
  return ir.Splat(word, Lanes());
}

// One step of k for all rows of a tile and all columns of the panel.
void ByteContractionEmitter::AddProducts(Ir& ir, Values& sums, const Tile& tile, const Values& rows,
                                         llvm::Value* panel, llvm::Value* step) {
  if (schedule_.fours) {
    AddFours(ir, sums, rows, panel, step);
    return;
  }
  llvm::IRBuilder<>& b = ir.b();
  const Values columns = LoadApart(ir, tile, panel, step);
  const size_t vectors = columns.size() / 2;
  llvm::Value* offset = ir.Mul(step, ir.Int(2 * kByteGroup));
  // First what is at even places, for all rows: half of the columns is in registers then.
  for (size_t half = 0; half < 2; ++half) {
    llvm::Value* at = ir.Add(offset, ir.Int(static_cast<int64_t>(half) * kByteGroup));
    for (size_t row = 0; row < rows.size(); ++row) {
      llvm::Value* a = RowWord(ir, rows[row], at);
      for (size_t part = 0; part < vectors; ++part) {
        llvm::Value*& sum = sums[row * vectors + part];
        sum = b.CreateAdd(sum, ir.MultiplyPairs(a, columns[half * vectors + part]));
      }
    }
  }
}

// --- Tasks ---

void ByteContractionEmitter::Run() {
  kernel_.ForEachTask([&](llvm::Value* task) { EmitTask(task); });
}

void ByteContractionEmitter::EmitTask(llvm::Value* task) {
  llvm::Value* per_task = kernel_.Dim(schedule_.panels_per_task);
  Values at =
      ir_.Decompose(task, {kernel_.Dim(schedule_.batches), kernel_.Dim(schedule_.panel_groups),
                           kernel_.Dim(schedule_.row_blocks)});
  batch_ = at[0];
  batch_at_ = ir_.Decompose(batch_, batch_extents_);
  const bool one_block = schedule_.row_blocks.IsConstant(1);
  first_row_ = one_block ? ir_.Int(0) : ir_.Mul(at[2], ir_.Int(schedule_.block_rows));
  rows_ = ir_.Min(ir_.Int(schedule_.block_rows), ir_.Sub(kernel_.Dim(schedule_.m), first_row_));
  if (schedule_.takes_apart) {
    takes_apart_ = ir_.b().CreateICmpSGE(rows_, ir_.Int(kRowsToTakeApart));
  }
  first_panel_ = ir_.Mul(at[1], per_task);
  task_panels_ = ir_.Min(per_task, ir_.Sub(panels_, first_panel_));
  PrepareRows();
  ir_.For(ir_.Int(0), task_panels_, 1, [&](llvm::Value* panel) { EmitTiles(panel); });
}

// Whatever a row needs before tiles read it: bytes, widened, summed.
void ByteContractionEmitter::PrepareRows() {
  const bool widens = !schedule_.fours;
  if (schedule_.direct_a && !widens && !schedule_.sums_rows) return;
  RowPacker packer(kernel_, contraction_, contraction_.a, ir_.facts().vector_bytes);
  ir_.Walk(first_row_, ir_.Add(first_row_, rows_), m_extents_,
           [&](llvm::Value* row, const Values& m) {
             llvm::Value* number = ir_.Sub(row, first_row_);
             llvm::Value* packed = ByteAt(rows_at_, ir_.Mul(number, row_bytes_));
             llvm::Value* bytes = widens ? line_at_ : packed;
             if (schedule_.direct_a) {
               bytes = SourceRow(row);
             } else {
               packer.Pack(ScopeAt(m, batch_extents_.size() + m_extents_.size()),
                           [&](llvm::Value* k, llvm::Value* values, int64_t) {
                             ir_.b().CreateAlignedStore(values, ByteAt(bytes, k), llvm::Align(1));
                           });
             }
             if (widens) WidenRow(bytes, packed);
             if (schedule_.sums_rows) {
               SumRow(bytes, ir_.b().CreateGEP(ir_.b().getInt32Ty(), sums_at_, number));
             }
           });
}

// The bytes of a row in place.
llvm::Value* ByteContractionEmitter::SourceRow(llvm::Value* row) {
  const Values m = ir_.Decompose(row, m_extents_);
  Scope scope = ScopeAt(m, batch_extents_.size() + m_extents_.size() + 1);
  scope.coordinates.back() = {ir_.Int(0)};
  return ExprEmitter(scope).AddressOf(contraction_.a);
}

// Bytes to 16 bits, those of each group in the order 0, 2, 1, 3. What fills up the last group meets
// zeros in b.
void ByteContractionEmitter::WidenRow(llvm::Value* source, llvm::Value* target) {
  llvm::IRBuilder<>& b = ir_.b();
  const int64_t lanes = ir_.facts().vector_bytes / 2;
  std::vector<int> order;
  for (int lane = 0; lane < lanes; ++lane) {
    constexpr int kPlaces[] = {0, 2, 1, 3};
    order.push_back(lane / 4 * 4 + kPlaces[lane % 4]);
  }
  auto widen = [&](llvm::Value* at) {
    llvm::Value* bytes =
        b.CreateAlignedLoad(Ir::Vector(b.getInt8Ty(), lanes), ByteAt(source, at), llvm::Align(1));
    llvm::Value* wide = b.CreateZExt(bytes, Ir::Vector(b.getInt16Ty(), lanes));
    b.CreateAlignedStore(b.CreateShuffleVector(wide, order),
                         b.CreateGEP(b.getInt16Ty(), target, at), llvm::Align(2));
  };
  if (!schedule_.direct_a) {
    // Packed rows have room up to whole lines.
    ir_.For(ir_.Int(0), k_, lanes, widen);
    return;
  }
  llvm::Value* rest = b.CreateAnd(k_, ir_.Int(lanes - 1));
  llvm::Value* whole = ir_.Sub(k_, rest);
  ir_.For(ir_.Int(0), whole, lanes, widen);
  ir_.For(whole, k_, 1, [&](llvm::Value* at) {
    llvm::Value* byte = b.CreateLoad(b.getInt8Ty(), ByteAt(source, at));
    // Places 1 and 2 of a group change.
    llvm::Value* outer =
        b.CreateICmpEQ(b.CreateAnd(ir_.Add(at, ir_.Int(1)), ir_.Int(2)), ir_.Int(0));
    llvm::Value* moved = b.CreateSelect(outer, at, b.CreateXor(at, ir_.Int(3)));
    b.CreateStore(b.CreateZExt(byte, b.getInt16Ty()), b.CreateGEP(b.getInt16Ty(), target, moved));
  });
}

void ByteContractionEmitter::SumRow(llvm::Value* source, llvm::Value* target) {
  llvm::IRBuilder<>& b = ir_.b();
  const int64_t lanes = schedule_.lanes;
  llvm::Type* vector = Ir::Vector(b.getInt32Ty(), lanes);
  llvm::Value* rest = b.CreateAnd(k_, ir_.Int(lanes - 1));
  llvm::Value* whole = ir_.Sub(k_, rest);
  Values sums = ir_.For(ir_.Int(0), whole, lanes, {llvm::Constant::getNullValue(vector)},
                        [&](llvm::Value* at, const Values& now) {
                          llvm::Value* bytes = b.CreateAlignedLoad(
                              Ir::Vector(b.getInt8Ty(), lanes), ByteAt(source, at), llvm::Align(1));
                          return Values{b.CreateAdd(now[0], b.CreateZExt(bytes, vector))};
                        });
  sums =
      ir_.For(whole, k_, 1, {b.CreateAddReduce(sums[0])}, [&](llvm::Value* at, const Values& now) {
        llvm::Value* byte = b.CreateLoad(b.getInt8Ty(), ByteAt(source, at));
        return Values{b.CreateAdd(now[0], b.CreateZExt(byte, b.getInt32Ty()))};
      });
  b.CreateStore(sums[0], target);
}

// A panel into scratch, as LoadApart reads it.
void ByteContractionEmitter::TakeApart(llvm::Value* bytes) {
  llvm::IRBuilder<>& b = ir_.b();
  ir_.For(ir_.Int(0), steps_, 1, [&](llvm::Value* step) {
    const Values halves = LoadApart(ir_, {}, bytes, step);
    llvm::Value* to = ByteAt(apart_at_, ir_.Mul(step, ir_.Int(2 * StepBytes())));
    for (size_t n = 0; n < halves.size(); ++n) {
      const int64_t offset = static_cast<int64_t>(n) * Lanes() * kByteGroup;
      b.CreateAlignedStore(halves[n], ByteAt(to, ir_.Int(offset)), llvm::Align(1));
    }
  });
}

void ByteContractionEmitter::EmitTiles(llvm::Value* panel) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* number = ir_.Add(first_panel_, panel);
  if (contraction_.b_batched) number = ir_.Add(ir_.Mul(batch_, panels_), number);
  llvm::Value* columns = ByteAt(operands_[static_cast<size_t>(contraction_.b)].address,
                                ir_.Mul(ir_.Mul(number, steps_), ir_.Int(StepBytes())));
  if (schedule_.takes_apart) {
    ir_.If(takes_apart_, [&] { TakeApart(columns); });
    columns = b.CreateSelect(takes_apart_, apart_at_, columns);
  }
  ir_.While(ir_.Int(0), rows_, [&](llvm::Value* row) {
    llvm::Value* left = ir_.Sub(rows_, row);
    llvm::Value* valid = ir_.Min(left, ir_.Int(kSmallTileRows));
    for (size_t n = tiles_.size() - 2; n-- > 0;) {
      llvm::Value* fits = b.CreateICmpSGE(left, ir_.Int(tiles_[n].rows));
      if (schedule_.takes_apart) fits = b.CreateAnd(fits, takes_apart_);
      valid = b.CreateSelect(fits, ir_.Int(tiles_[n].rows), valid);
    }
    CallTiles(row, left, valid, columns);
    EmitEpilogue(panel, row, valid);
    return ir_.Add(row, valid);
  });
}

// Sums of the `valid` rows from `row` on.
void ByteContractionEmitter::CallTiles(llvm::Value* row, llvm::Value* left, llvm::Value* valid,
                                       llvm::Value* columns) {
  std::function<void(const std::vector<Tile>&, size_t)> choose = [&](const std::vector<Tile>& tiles,
                                                                     size_t n) {
    auto call = [&] { CallTile(tiles[n], row, valid, columns); };
    if (n + 1 == tiles.size()) {
      call();
      return;
    }
    const int64_t least = tiles[n].addresses > 1 ? 2 : tiles[n].rows;
    ir_.If(ir_.b().CreateICmpSGE(left, ir_.Int(least)), call, [&] { choose(tiles, n + 1); });
  };
  if (!schedule_.takes_apart) {
    choose(tiles_, 0);
    return;
  }
  ir_.If(takes_apart_, [&] { choose(tiles_, 0); }, [&] { choose(small_tiles_, 0); });
}

void ByteContractionEmitter::CallTile(const Tile& tile, llvm::Value* row, llvm::Value* valid,
                                      llvm::Value* columns) {
  Values values;
  if (tile.addresses == 1) {
    values.push_back(RowAddress(row));
  } else {
    for (int64_t n = 0; n < tile.addresses; ++n) {
      // Past the last row it is repeated, so that nothing outside `a` is read.
      llvm::Value* number = ir_.Min(ir_.Int(n), ir_.Sub(valid, ir_.Int(1)));
      values.push_back(RowAddress(ir_.Add(row, number)));
    }
  }
  values.insert(values.end(), {distance_, columns, steps_, tile_at_});
  ir_.b().CreateCall(tile.function, values);
}

// Of a row of the task, as tiles read it.
llvm::Value* ByteContractionEmitter::RowAddress(llvm::Value* row) {
  if (schedule_.direct_a && schedule_.fours) return SourceRow(ir_.Add(first_row_, row));
  return ByteAt(rows_at_, ir_.Mul(row, row_bytes_));
}

Scope ByteContractionEmitter::ScopeAt(const Values& m, size_t axes) {
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

void ByteContractionEmitter::EmitEpilogue(llvm::Value* panel, llvm::Value* row,
                                          llvm::Value* valid) {
  llvm::Value* first_column = ir_.Mul(ir_.Add(first_panel_, panel), ir_.Int(contraction_.panel));
  llvm::Value* width = ir_.Min(ir_.Int(contraction_.panel), ir_.Sub(n_, first_column));
  llvm::Value* first = ir_.Add(first_row_, row);
  Values at = ir_.Decompose(first, m_extents_);
  llvm::Value* begin = ir_.Int(0);
  const std::optional<int64_t> n = contraction_.n.constant();
  const int64_t together = RowsTogether();
  if (together > 0 && n.has_value() && *n % contraction_.panel == 0) {
    llvm::Value* rest = ir_.b().CreateURem(valid, ir_.Int(together));
    begin = ir_.Sub(valid, rest);
    at = ir_.For(ir_.Int(0), begin, together, at, [&](llvm::Value* number, const Values& m) {
      return EpilogueTogether(row, number, m, together, first_column);
    });
  }
  ir_.For(begin, valid, 1, at, [&](llvm::Value* number, const Values& m) {
    EpilogueRow(EpilogueScope(row, number, m), first_column, width, SumsOf(number));
    return ir_.Next(m, m_extents_);
  });
}

// As many as divide a tile and leave half of the registers for what they have in common.
int64_t ByteContractionEmitter::RowsTogether() const {
  constexpr int64_t kVectors = 8;
  int64_t rows = kVectors / (contraction_.panel / Lanes());
  while (rows > 0 && schedule_.tile_rows % rows != 0) --rows;
  return rows;
}

llvm::Value* ByteContractionEmitter::SumsOf(llvm::Value* number) {
  llvm::Value* index = ir_.Mul(number, ir_.Int(contraction_.panel));
  return ir_.b().CreateGEP(ir_.b().getInt32Ty(), tile_at_, index);
}

// Of row `number` of a tile that begins at `row`.
Scope ByteContractionEmitter::EpilogueScope(llvm::Value* row, llvm::Value* number,
                                            const Values& m) {
  llvm::IRBuilder<>& b = ir_.b();
  Scope scope = ScopeAt(m, batch_extents_.size() + m_extents_.size() + 1);
  scope.accumulators.resize(2);
  if (schedule_.sums_rows) {
    llvm::Value* place = b.CreateGEP(b.getInt32Ty(), sums_at_, ir_.Add(row, number));
    scope.accumulators[1] = {b.CreateLoad(b.getInt32Ty(), place)};
  }
  return scope;
}

// Some rows at once, operation by operation: one row's operations wait for each other. Returns the
// coordinates of the row after them.
ByteContractionEmitter::Values ByteContractionEmitter::EpilogueTogether(llvm::Value* row,
                                                                        llvm::Value* number,
                                                                        Values m, int64_t rows,
                                                                        llvm::Value* first_column) {
  const int64_t lanes = Lanes();
  std::vector<Scope> scopes;
  for (int64_t n = 0; n < rows; ++n) {
    llvm::Value* this_row = ir_.Add(number, ir_.Int(n));
    const Scope scope = EpilogueScope(row, this_row, m);
    for (int64_t at = 0; at < contraction_.panel; at += lanes) {
      scopes.push_back(LanesOf(scope, first_column, ir_.Int(at), SumsOf(this_row), lanes));
    }
    m = ir_.Next(m, m_extents_);
  }
  std::vector<ExprEmitter> emitters(scopes.begin(), scopes.end());
  contraction_.result.Visit([&](const Expr& node) {
    Values values;
    for (ExprEmitter& emitter : emitters) values.push_back(emitter.Emit(node).value);
    if (node.op() != ExprOp::kRound || !values[0]->getType()->isVectorTy()) return;
    // The compiler would put one row after the other again.
    values = ir_.MadeTogether(values);
    for (size_t n = 0; n < emitters.size(); ++n) emitters[n].Provide(node, {values[n]});
  });
  for (ExprEmitter& emitter : emitters) StoreResult(emitter);
  return m;
}

void ByteContractionEmitter::EpilogueRow(const Scope& row, llvm::Value* first_column,
                                         llvm::Value* width, llvm::Value* sums) {
  const int64_t lanes = Lanes();
  const std::optional<int64_t> n = contraction_.n.constant();
  if (n.has_value() && *n % contraction_.panel == 0) {
    for (int64_t at = 0; at < contraction_.panel; at += lanes) {
      EpilogueLanes(row, first_column, ir_.Int(at), sums, lanes);
    }
    return;
  }
  auto loop = [&](int64_t step) {
    ir_.For(ir_.Int(0), width, step, [&](llvm::Value* i) {
      llvm::Value* at = step == 1 ? i : ir_.Min(i, ir_.Sub(width, ir_.Int(step)));
      EpilogueLanes(row, first_column, at, sums, step);
    });
  };
  ir_.If(ir_.b().CreateICmpSGE(width, ir_.Int(lanes)), [&] { loop(lanes); }, [&] { loop(1); });
}

// `lanes` columns of a row from place `at` of the panel on.
Scope ByteContractionEmitter::LanesOf(const Scope& row, llvm::Value* first_column, llvm::Value* at,
                                      llvm::Value* sums, int64_t lanes) {
  llvm::IRBuilder<>& b = ir_.b();
  Scope scope = row;
  scope.lanes = lanes;
  scope.coordinates.back() = {ir_.Add(first_column, at), lanes == 1 ? nullptr : ir_.Int(1)};
  scope.accumulators[0] = {b.CreateAlignedLoad(
      Ir::Vector(b.getInt32Ty(), lanes), b.CreateGEP(b.getInt32Ty(), sums, at), llvm::Align(4))};
  return scope;
}

void ByteContractionEmitter::EpilogueLanes(const Scope& row, llvm::Value* first_column,
                                           llvm::Value* at, llvm::Value* sums, int64_t lanes) {
  const Scope scope = LanesOf(row, first_column, at, sums, lanes);
  ExprEmitter emitter(scope);
  StoreResult(emitter);
}

void ByteContractionEmitter::StoreResult(ExprEmitter& emitter) {
  const Lane value = emitter.Emit(contraction_.result);
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : output_coordinates_) {
    coordinates.push_back(emitter.Emit(coordinate));
  }
  emitter.Store(output_, coordinates, value);
}

}  // namespace

void EmitByteContraction(KernelFunction& kernel, const Contraction& contraction,
                         const Target& target) {
  ByteContractionEmitter(kernel, contraction, target).Run();
}

}  // namespace stampmill
