// The loops, outermost first: task = (batch, block of rows, group of panels); blocks of k; panels;
// tiles of rows. A panel's block of k stays in the first-level cache while the tiles of the rows
// pass over it; the rows' block of k stays in the second-level cache. Tasks of the same rows follow
// each other: rows that are packed at once are packed once for them, and a thread that takes
// neighbouring tasks finds what it wrote of the rows before in its own cache.
//
// Register tiles are functions of their own, one for each height. Full tiles find their rows at a
// constant distance; the small one takes four addresses, of which those past the last row repeat
// it, so that nothing outside `a` is read. A last panel that n does not fill has tiles of its own,
// which compute no more vectors, nor a wider last one, than its columns need.
//
// High tiles make results of their sums while these are in registers, where the result is short and
// columns fill whole vectors that are neighbours in the output. Elsewhere sums go through scratch,
// and results are made row by row.
//
// What comes next is fetched while tiles compute, a line or two for each turn of their loops: the
// next panel, and the rows that will be packed next, of which nothing else hides the way from
// memory.
#include "compiler/llvm/contraction_emitter.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/codegen/access.h"
#include "compiler/codegen/launch_plan.h"
#include "compiler/llvm/contraction_frame.h"
#include "compiler/llvm/expr_emitter.h"
#include "compiler/llvm/row_fetcher.h"
#include "compiler/llvm/row_packer.h"
#include "compiler/llvm/scalar_ops.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicsX86.h"

namespace stampmill {
namespace {

constexpr int64_t kSmallTileRows = 4;
// Steps of k that are written out in one turn of a tile's loop.
constexpr int64_t kUnrolledSteps = RowFetcher::kTurnSteps;
constexpr int64_t kLineBytes = 64;
constexpr int64_t kPageBytes = 4096;
// Of a result that is written out for each vector of a tile.
constexpr int64_t kWrittenOutCostMax = 24;
// Of the narrowest vectors: those below are no faster.
constexpr int64_t kNarrowestBytes = 16;

// What `a` converts, or `a`.
Expr Unconverted(const Expr& a) { return a.op() == ExprOp::kCast ? a.operands()[0] : a; }

// What is evaluated when rows are packed: what instructions can round is left to them.
Expr PackedValue(const Contraction& contraction, const ContractionSchedule& schedule) {
  const Expr inner = Unconverted(contraction.a);
  return schedule.dots && inner.dtype() == DType::kF32 ? inner : contraction.a;
}

class ContractionEmitter {
 public:
  ContractionEmitter(KernelFunction& kernel, const Contraction& contraction, const Target& target);
  void Run();

 private:
  using Values = Ir::Values;

  // A vector of a row of a panel.
  struct Part {
    int64_t begin = 0;  // column
    int64_t lanes = 0;
  };
  struct Tile {
    int64_t rows = 0;
    int64_t addresses = 1;  // how many of its rows come with an address of their own
    bool finishes = false;  // makes results of its last sums itself, while they are in registers
    llvm::Function* function = nullptr;
  };
  // A kind of panel: the vectors of its columns, and the tiles that compute them, of descending
  // heights; the last two are the small tile and one row.
  struct Panel {
    std::vector<Part> parts;
    std::vector<Tile> tiles;
  };
  std::vector<Part> PartsOf(int64_t columns) const;
  Panel MakePanel(int64_t columns, const std::string& name);
  bool Finishes(const std::vector<Part>& parts, int64_t columns) const;
  void MakeFunction(Tile& tile, const std::vector<Part>& parts, const std::string& name);
  Values EmitDots(Ir& ir, const Values& rows, const Values& columns, const Values& now);
  Values EmitPairs(Ir& ir, const Values& rows, const Values& columns, const Values& now);
  // The arguments of a tile after the addresses of its rows, before which one that finishes takes
  // the kernel's.
  struct TileArguments {
    llvm::Value* panel = nullptr;
    llvm::Value* count = nullptr;       // steps
    llvm::Value* c = nullptr;           // accumulators
    llvm::Value* accumulate = nullptr;  // i1: they are loaded first
    llvm::Value* next_panel = nullptr;  // from where to fetch of the next panel
    llvm::Value* next_rows = nullptr;   // where rows are fetched: see RowFetcher
    llvm::Value* row_bytes = nullptr;
    // Of one that finishes:
    llvm::Value* is_last = nullptr;       // i1: results are made
    llvm::Value* batch = nullptr;         // flat
    llvm::Value* row = nullptr;           // flat, of all
    llvm::Value* first_column = nullptr;  // of the panel
  };
  void EmitTileBody(KernelFunction& part, const Tile& tile, const std::vector<Part>& parts);
  // `addresses`: of the first tile.addresses rows.
  Values EmitSums(Ir& ir, const Tile& tile, const std::vector<Part>& parts, const Values& addresses,
                  const TileArguments& arguments);
  Values EmitStep(Ir& ir, const Tile& tile, const std::vector<Part>& parts, const Values& addresses,
                  llvm::Value* panel, llvm::Value* k, const Values& now);
  void EmitPrefetch(Ir& ir, const Tile& tile, llvm::Value* k, const TileArguments& arguments);
  // High tiles of a block of rows, which fetch what comes next between them.
  int64_t TilesOfBlock() const;
  // Bytes of the next panel that one of them fetches for each of its steps of k.
  int64_t AheadBytes() const {
    const int64_t tiles = TilesOfBlock();
    return (contraction_.panel * element_bytes_ + tiles - 1) / tiles;
  }

  void EmitTask(llvm::Value* task);
  void EmitRows(llvm::Value* task);
  void EmitBlockOfK(llvm::Value* task, llvm::Value* begin);
  void EmitPanel(llvm::Value* panel, llvm::Value* k_begin, llvm::Value* k_count);
  void EmitTiles(const Panel& kind, llvm::Value* panel, llvm::Value* k_begin, llvm::Value* k_count);
  void CallTile(const Tile& tile, llvm::Value* row, llvm::Value* valid, llvm::Value* k_begin,
                const TileArguments& arguments);
  void Finish(KernelFunction& part, const std::vector<Part>& parts, const TileArguments& arguments,
              const Values& sums);
  void StoreSums(Ir& ir, const std::vector<Part>& parts, llvm::Value* c, const Values& sums);
  llvm::Value* PlaceOf(Ir& ir, llvm::Value* c, int64_t row, const Part& part);
  void FindNextRows(llvm::Value* k_begin, llvm::Value* k_count);
  llvm::Value* RowAddress(llvm::Value* row, llvm::Value* k_begin);
  llvm::Value* AccumulatorAddress(llvm::Value* panel, llvm::Value* row);

  void PackOnce(llvm::Value* task, llvm::Value* begin, llvm::Value* count);
  void EmitPack(llvm::Value* begin, llvm::Value* count);

  void EmitEpilogue(const Panel& kind, llvm::Value* panel, llvm::Value* row, llvm::Value* valid,
                    llvm::Value* c);
  void EpilogueRow(const Panel& kind, const Scope& row, llvm::Value* first_column,
                   llvm::Value* width, llvm::Value* c_row);
  void EpilogueColumns(const Scope& row, llvm::Value* first_column, int64_t begin, int64_t count,
                       bool reaches_back, llvm::Value* c_row);
  llvm::Value* LoadSums(llvm::Value* c_row, llvm::Value* at, int64_t lanes);
  llvm::Value* ElementAt(llvm::Value* base, llvm::Value* index) {
    return ir_.b().CreateGEP(element_, base, index);
  }
  llvm::Value* ByteAt(llvm::Value* base, llvm::Value* offset) {
    return ir_.b().CreateGEP(ir_.b().getInt8Ty(), base, offset);
  }

  KernelFunction& kernel_;
  Ir& ir_;
  const Contraction& contraction_;
  ContractionSchedule schedule_;
  int64_t element_bytes_;
  bool keeps_accumulators_;
  llvm::Type* element_;
  ContractionFrame frame_;
  RowFetcher fetcher_;
  RowPacker packer_;
  Panel whole_;                // a panel full of columns, or of which n is not known
  std::optional<Panel> last_;  // the last one, where n is known not to fill it
  llvm::Value* k_ = nullptr;
  llvm::Value* steps_ = nullptr;
  llvm::Value* n_ = nullptr;
  llvm::Value* panels_ = nullptr;
  llvm::Value* packed_ = nullptr;
  llvm::Value* accumulators_ = nullptr;
  // Of the current task.
  llvm::Value* batch_ = nullptr;
  llvm::Value* group_ = nullptr;
  llvm::Value* first_row_ = nullptr;
  llvm::Value* rows_ = nullptr;
  llvm::Value* first_panel_ = nullptr;
  llvm::Value* task_panels_ = nullptr;
};

ContractionEmitter::ContractionEmitter(KernelFunction& kernel, const Contraction& contraction,
                                       const Target& target)
    : kernel_(kernel),
      ir_(kernel.ir()),
      contraction_(contraction),
      schedule_(ScheduleContraction(contraction, target)),
      element_bytes_(static_cast<int64_t>(SizeBytes(contraction.accumulator))),
      element_(kernel.ir().ValueType(contraction.accumulator)),
      frame_(kernel, contraction),
      fetcher_(kernel, frame_, contraction, schedule_, TilesOfBlock()),
      packer_(kernel, contraction, PackedValue(contraction, schedule_), schedule_.lanes) {
  std::optional<int64_t> steps = schedule_.steps.constant();
  keeps_accumulators_ = !steps.has_value() || *steps > schedule_.block_k;
  k_ = kernel.Dim(schedule_.k);
  steps_ = kernel.Dim(schedule_.steps);
  n_ = kernel.Dim(contraction.n);
  panels_ = kernel.Dim(schedule_.panels);
  packed_ = kernel.Scratch();
  llvm::Value* packed_bytes = kernel.Dim(schedule_.scratch_a_bytes);
  ir_.AtEntry([&] { accumulators_ = ByteAt(packed_, packed_bytes); });
  const std::optional<int64_t> n = contraction.n.constant();
  if (!n.has_value() || *n >= contraction.panel || *n == 0)
    whole_ = MakePanel(contraction.panel, "tile");
  if (n.has_value() && *n % contraction.panel != 0) {
    last_ = MakePanel(*n % contraction.panel, "last_tile");
  }
}

int64_t ContractionEmitter::TilesOfBlock() const {
  const std::optional<int64_t> rows = Min(schedule_.m, schedule_.rows_per_task).constant();
  return std::max<int64_t>(rows.value_or(schedule_.block_rows) / schedule_.tile_rows, 1);
}

// Full vectors, then the narrowest that holds the rest.
std::vector<ContractionEmitter::Part> ContractionEmitter::PartsOf(int64_t columns) const {
  int64_t lanes = std::min(schedule_.lanes, contraction_.panel);
  std::vector<Part> parts;
  for (int64_t begin = 0; begin < columns; begin += parts.back().lanes) {
    int64_t width = lanes;
    while (width / 2 >= columns - begin && width > kNarrowestBytes / element_bytes_) width /= 2;
    parts.push_back({begin, width});
  }
  return parts;
}

// Where each part is full of columns, which are neighbours in the output too, and the result is
// short enough to be written out for each vector of a tile.
bool ContractionEmitter::Finishes(const std::vector<Part>& parts, int64_t columns) const {
  const size_t axis = contraction_.batch.size() + contraction_.m.size();
  const std::vector<Expr>& places = contraction_.output_coordinates;
  const bool is_full = parts.back().begin + parts.back().lanes == columns;
  const bool are_neighbours =
      places.empty() || WalkOf(places, static_cast<int32_t>(axis)) == AxisWalk::kUnit;
  return contraction_.n.constant().has_value() && is_full && are_neighbours &&
         CostOf({&contraction_.result, 1}) <= kWrittenOutCostMax;
}

ContractionEmitter::Panel ContractionEmitter::MakePanel(int64_t columns, const std::string& name) {
  Panel panel = {PartsOf(columns), {}};
  const bool finishes = Finishes(panel.parts, columns);
  panel.tiles.push_back({.rows = schedule_.tile_rows, .finishes = finishes});
  if (schedule_.tile_rows > 8) panel.tiles.push_back({.rows = 8, .finishes = finishes});
  panel.tiles.push_back({.rows = kSmallTileRows, .addresses = kSmallTileRows});
  panel.tiles.push_back({.rows = 1});
  for (Tile& tile : panel.tiles) MakeFunction(tile, panel.parts, name);
  return panel;
}

// void tile(a..., TileArguments): c[row][panel] (+)= a[row][k] * b[k][panel].
void ContractionEmitter::MakeFunction(Tile& tile, const std::vector<Part>& parts,
                                      const std::string& name) {
  llvm::Type* pointer = ir_.b().getPtrTy();
  llvm::Type* i64 = ir_.b().getInt64Ty();
  llvm::Type* i1 = ir_.b().getInt1Ty();
  std::vector<llvm::Type*> parameters(static_cast<size_t>(tile.addresses), pointer);
  if (tile.finishes) parameters.push_back(pointer);
  const size_t first = parameters.size();
  parameters.insert(parameters.end(), {pointer, i64, pointer, i1, pointer});
  if (fetcher_.is_active()) parameters.insert(parameters.end(), {pointer, i64});
  if (tile.finishes) parameters.insert(parameters.end(), {i1, i64, i64, i64});
  auto* type = llvm::FunctionType::get(ir_.b().getVoidTy(), parameters, false);
  tile.function = llvm::Function::Create(
      type, llvm::GlobalValue::InternalLinkage,
      absl::StrCat(kernel_.function()->getName().str(), "_", name, tile.rows), ir_.module());
  tile.function->addFnAttr(llvm::Attribute::NoInline);
  for (llvm::Argument& argument : tile.function->args()) {
    if (argument.getType()->isPointerTy()) argument.addAttr(llvm::Attribute::NoCapture);
  }
  // c is scratch: nothing else writes there, and nobody else reads it meanwhile.
  tile.function->getArg(static_cast<unsigned>(first) + 2)->addAttr(llvm::Attribute::NoAlias);
  KernelFunction part(tile.function, ir_.facts());
  EmitTileBody(part, tile, parts);
}

void ContractionEmitter::EmitTileBody(KernelFunction& part, const Tile& tile,
                                      const std::vector<Part>& parts) {
  Ir& ir = part.ir();
  unsigned count = tile.finishes ? 1 : 0;
  auto next = [&] { return tile.function->getArg(count++); };
  Values addresses;
  for (int64_t n = 0; n < tile.addresses; ++n) addresses.push_back(next());
  TileArguments arguments;
  for (llvm::Value** argument : {&arguments.panel, &arguments.count, &arguments.c,
                                 &arguments.accumulate, &arguments.next_panel}) {
    *argument = next();
  }
  if (fetcher_.is_active()) {
    arguments.next_rows = next();
    arguments.row_bytes = next();
  }
  const Values sums = EmitSums(ir, tile, parts, addresses, arguments);
  if (tile.finishes) {
    for (llvm::Value** argument :
         {&arguments.is_last, &arguments.batch, &arguments.row, &arguments.first_column}) {
      *argument = next();
    }
    ir.If(
        keeps_accumulators_ ? arguments.is_last : ir.b().getTrue(),
        [&] { Finish(part, parts, arguments, sums); },
        [&] { StoreSums(ir, parts, arguments.c, sums); });
  } else {
    StoreSums(ir, parts, arguments.c, sums);
  }
  ir.b().CreateRetVoid();
}

llvm::Value* ContractionEmitter::PlaceOf(Ir& ir, llvm::Value* c, int64_t row, const Part& part) {
  return ir.b().CreateGEP(element_, c, ir.Int(row * contraction_.panel + part.begin));
}

void ContractionEmitter::StoreSums(Ir& ir, const std::vector<Part>& parts, llvm::Value* c,
                                   const Values& sums) {
  const llvm::Align alignment(static_cast<uint64_t>(element_bytes_));
  for (size_t n = 0; n < sums.size(); ++n) {
    const auto row = static_cast<int64_t>(n / parts.size());
    ir.b().CreateAlignedStore(sums[n], PlaceOf(ir, c, row, parts[n % parts.size()]), alignment);
  }
}

ContractionEmitter::Values ContractionEmitter::EmitSums(Ir& ir, const Tile& tile,
                                                        const std::vector<Part>& parts,
                                                        const Values& addresses,
                                                        const TileArguments& arguments) {
  llvm::IRBuilder<>& b = ir.b();
  const llvm::Align alignment(static_cast<uint64_t>(element_bytes_));
  auto type = [&](const Part& part) { return Ir::Vector(element_, part.lanes); };
  Values zeros;
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (const Part& part : parts) zeros.push_back(llvm::Constant::getNullValue(type(part)));
  }
  // Loads the accumulators, or not: a loop of at most one turn.
  Values start = ir.For(ir.Int(0), b.CreateZExt(arguments.accumulate, b.getInt64Ty()), 1, zeros,
                        [&](llvm::Value*, const Values&) {
                          Values loaded;
                          for (int64_t row = 0; row < tile.rows; ++row) {
                            for (const Part& part : parts) {
                              llvm::Value* place = PlaceOf(ir, arguments.c, row, part);
                              loaded.push_back(b.CreateAlignedLoad(type(part), place, alignment));
                            }
                          }
                          return loaded;
                        });
  auto step = [&](llvm::Value* k, const Values& now) {
    return EmitStep(ir, tile, parts, addresses, arguments.panel, k, now);
  };
  llvm::Value* rest = b.CreateAnd(arguments.count, ir.Int(kUnrolledSteps - 1));
  llvm::Value* whole = ir.Sub(arguments.count, rest);
  Values sums =
      ir.For(ir.Int(0), whole, kUnrolledSteps, start, [&](llvm::Value* k, const Values& now) {
        Values result = now;
        EmitPrefetch(ir, tile, k, arguments);
        for (int64_t n = 0; n < kUnrolledSteps; ++n) {
          result = step(ir.Add(k, ir.Int(n)), result);
        }
        return result;
      });
  return ir.For(whole, arguments.count, 1, sums, step);
}

// The accumulators after step `k`.
ContractionEmitter::Values ContractionEmitter::EmitStep(Ir& ir, const Tile& tile,
                                                        const std::vector<Part>& parts,
                                                        const Values& addresses, llvm::Value* panel,
                                                        llvm::Value* k, const Values& now) {
  llvm::IRBuilder<>& b = ir.b();
  llvm::Align alignment(static_cast<uint64_t>(element_bytes_));
  Values columns;
  for (const Part& part : parts) {
    llvm::Value* index = ir.Add(ir.Mul(k, ir.Int(contraction_.panel)), ir.Int(part.begin));
    columns.push_back(b.CreateAlignedLoad(Ir::Vector(element_, part.lanes),
                                          b.CreateGEP(element_, panel, index), alignment));
  }
  Values rows;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const bool own = tile.addresses > 1;
    llvm::Value* base = addresses[own ? static_cast<size_t>(row) : 0];
    const int64_t distance = own ? 0 : row * schedule_.a_row_bytes;
    llvm::Value* offset = ir.Add(ir.Mul(k, ir.Int(schedule_.a_step_bytes)), ir.Int(distance));
    rows.push_back(b.CreateGEP(b.getInt8Ty(), base, offset));
  }
  if (schedule_.dots) return EmitDots(ir, rows, columns, now);
  if (schedule_.group > 1) return EmitPairs(ir, rows, columns, now);
  Values result;
  for (llvm::Value* row : rows) {
    llvm::Value* a = b.CreateAlignedLoad(element_, row, alignment);
    for (llvm::Value* column : columns) {
      llvm::Value* splat = ir.Splat(a, Ir::Lanes(column));
      result.push_back(EmitMultiplyAdd(ir, splat, column, now[result.size()]));
    }
  }
  return result;
}

// A row's pair, one word, by a vector of pairs.
ContractionEmitter::Values ContractionEmitter::EmitDots(Ir& ir, const Values& rows,
                                                        const Values& columns, const Values& now) {
  llvm::IRBuilder<>& b = ir.b();
  Values result;
  for (llvm::Value* row : rows) {
    llvm::Value* word = b.CreateAlignedLoad(b.getInt32Ty(), row, llvm::Align(2));
    for (llvm::Value* column : columns) {
      const int64_t lanes = Ir::Lanes(column);
      if (element_->isIntegerTy()) {
        llvm::Value* products = ir.MultiplyPairs(ir.Splat(word, lanes), column);
        result.push_back(b.CreateAdd(now[result.size()], products));
        continue;
      }
      const llvm::Intrinsic::ID dot = lanes == 16  ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512
                                      : lanes == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                                   : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
      llvm::Type* pairs = Ir::Vector(b.getBFloatTy(), 2 * lanes);
      result.push_back(
          b.CreateIntrinsic(dot, {},
                            {now[result.size()], b.CreateBitCast(ir.Splat(word, lanes), pairs),
                             b.CreateBitCast(column, pairs)}));
    }
  }
  return result;
}

// The same sums from a row in the accumulator's type: products are exact, so each addition rounds
// alike. First the later numbers of all pairs, which are the upper halves, then the earlier ones.
ContractionEmitter::Values ContractionEmitter::EmitPairs(Ir& ir, const Values& rows,
                                                         const Values& columns, const Values& now) {
  llvm::IRBuilder<>& b = ir.b();
  Values result = now;
  for (int64_t number : {1, 0}) {
    Values halves;
    for (llvm::Value* column : columns) {
      llvm::Type* words = Ir::Vector(b.getInt32Ty(), Ir::Lanes(column));
      llvm::Value* bits = b.CreateBitCast(column, words);
      bits = number == 1 ? b.CreateAnd(bits, llvm::ConstantInt::get(words, 0xffff0000u))
                         : b.CreateShl(bits, llvm::ConstantInt::get(words, 16));
      if (element_->isIntegerTy()) bits = b.CreateAShr(bits, llvm::ConstantInt::get(words, 16));
      halves.push_back(b.CreateBitCast(bits, column->getType()));
    }
    for (size_t row = 0; row < rows.size(); ++row) {
      llvm::Value* place = b.CreateGEP(element_, rows[row], ir.Int(number));
      llvm::Value* a = b.CreateAlignedLoad(element_, place, llvm::Align(4));
      for (size_t part = 0; part < halves.size(); ++part) {
        llvm::Value*& sum = result[row * halves.size() + part];
        sum = EmitMultiplyAdd(ir, ir.Splat(a, Ir::Lanes(halves[part])), halves[part], sum);
      }
    }
  }
  return result;
}

// High tiles fetch the next panel, which their successors need, slowly; low ones wait for memory
// themselves and fetch what they read a page later.
void ContractionEmitter::EmitPrefetch(Ir& ir, const Tile& tile, llvm::Value* k,
                                      const TileArguments& arguments) {
  llvm::IRBuilder<>& b = ir.b();
  auto fetch = [&](llvm::Value* base, llvm::Value* offset, int locality) {
    EmitFetch(ir, b.CreateGEP(b.getInt8Ty(), base, offset), locality);
  };
  if (tile.rows > kSmallTileRows) {
    for (int64_t at = 0; at < AheadBytes() * kUnrolledSteps; at += kLineBytes) {
      fetch(arguments.next_panel, ir.Add(ir.Mul(k, ir.Int(AheadBytes())), ir.Int(at)), 2);
    }
    if (fetcher_.is_active()) {
      fetcher_.EmitTurn(ir, arguments.next_rows, arguments.row_bytes, k);
    }
    return;
  }
  int64_t step_bytes = contraction_.panel * element_bytes_;
  for (int64_t at = 0; at < step_bytes * kUnrolledSteps; at += kLineBytes) {
    fetch(arguments.panel, ir.Add(ir.Mul(k, ir.Int(step_bytes)), ir.Int(at + kPageBytes)), 3);
  }
}

void ContractionEmitter::Run() {
  kernel_.ForEachTask([&](llvm::Value* task) { EmitTask(task); });
}

void ContractionEmitter::EmitTask(llvm::Value* task) {
  llvm::Value* per_task = kernel_.Dim(schedule_.panels_per_task);
  Values at =
      ir_.Decompose(task, {kernel_.Dim(schedule_.batches), kernel_.Dim(schedule_.row_blocks),
                           kernel_.Dim(schedule_.panel_groups)});
  batch_ = at[0];
  group_ = at[2];
  frame_.SetBatch(batch_);
  bool one_block = schedule_.row_blocks.IsConstant(1);
  llvm::Value* rows_per_task = kernel_.Dim(schedule_.rows_per_task);
  first_row_ = one_block ? ir_.Int(0) : ir_.Mul(at[1], rows_per_task);
  llvm::Value* all_rows = kernel_.Dim(schedule_.m);
  if (contraction_.rows.valid()) {
    const Scope scope = frame_.RowScope({}, 0);
    all_rows = ir_.Min(all_rows, ExprEmitter(scope).Emit(contraction_.rows).value);
  }
  rows_ = ir_.Min(rows_per_task, ir_.Sub(all_rows, first_row_));
  first_panel_ = ir_.Mul(group_, per_task);
  task_panels_ = ir_.Min(per_task, ir_.Sub(panels_, first_panel_));
  if (!contraction_.rows.valid()) {
    EmitRows(task);
    return;
  }
  ir_.If(ir_.b().CreateICmpSGT(rows_, ir_.Int(0)), [&] { EmitRows(task); });
}

void ContractionEmitter::EmitRows(llvm::Value* task) {
  if (schedule_.pack_whole_k) PackOnce(task, ir_.Int(0), steps_);
  // With no k at all there is one empty block: the accumulators are zero.
  ir_.For(ir_.Int(0), ir_.Max(steps_, ir_.Int(1)), schedule_.block_k,
          [&](llvm::Value* begin) { EmitBlockOfK(task, begin); });
}

void ContractionEmitter::EmitBlockOfK(llvm::Value* task, llvm::Value* begin) {
  llvm::Value* count = ir_.Min(ir_.Int(schedule_.block_k), ir_.Sub(steps_, begin));
  if (!schedule_.direct_a && !schedule_.pack_whole_k) {
    if (keeps_accumulators_) {
      EmitPack(begin, count);
    } else {
      PackOnce(task, begin, count);
    }
  }
  if (fetcher_.is_active()) FindNextRows(begin, count);
  ir_.For(ir_.Int(0), task_panels_, 1, [&](llvm::Value* panel) { EmitPanel(panel, begin, count); });
}

void ContractionEmitter::EmitPanel(llvm::Value* panel, llvm::Value* k_begin, llvm::Value* k_count) {
  if (!last_.has_value()) {
    EmitTiles(whole_, panel, k_begin, k_count);
    return;
  }
  if (whole_.tiles.empty()) {
    EmitTiles(*last_, panel, k_begin, k_count);
    return;
  }
  llvm::Value* following = ir_.Add(ir_.Add(first_panel_, panel), ir_.Int(1));
  ir_.If(
      ir_.b().CreateICmpEQ(following, panels_), [&] { EmitTiles(*last_, panel, k_begin, k_count); },
      [&] { EmitTiles(whole_, panel, k_begin, k_count); });
}

void ContractionEmitter::EmitTiles(const Panel& kind, llvm::Value* panel, llvm::Value* k_begin,
                                   llvm::Value* k_count) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* number = ir_.Add(first_panel_, panel);
  if (contraction_.b_batched) number = ir_.Add(ir_.Mul(batch_, panels_), number);
  llvm::Value* step = ir_.Add(ir_.Mul(number, steps_), k_begin);
  llvm::Value* columns = ElementAt(frame_.b().address, ir_.Mul(step, ir_.Int(contraction_.panel)));
  llvm::Value* next_panel = ElementAt(columns, ir_.Mul(steps_, ir_.Int(contraction_.panel)));
  ir_.While(ir_.Int(0), rows_, [&](llvm::Value* row) {
    llvm::Value* left = ir_.Sub(rows_, row);
    llvm::Value* c = AccumulatorAddress(panel, row);
    // The tiles of a panel fetch the next panel between them, a piece each.
    llvm::Value* piece = ir_.Mul(ir_.b().CreateUDiv(row, ir_.Int(schedule_.tile_rows)),
                                 ir_.Mul(k_count, ir_.Int(AheadBytes())));
    llvm::Value* is_last =
        keeps_accumulators_ ? b.CreateICmpSGE(ir_.Add(k_begin, k_count), steps_) : b.getTrue();
    TileArguments arguments = {columns, k_count, c, b.CreateICmpSGT(k_begin, ir_.Int(0)),
                               b.CreateGEP(b.getInt8Ty(), next_panel, piece)};
    if (fetcher_.is_active()) {
      llvm::Value* tile = b.CreateUDiv(row, ir_.Int(schedule_.tile_rows));
      arguments.next_rows = fetcher_.StartOf(panel, task_panels_, tile);
      arguments.row_bytes = fetcher_.row_bytes();
    }
    arguments.is_last = is_last;
    arguments.batch = batch_;
    arguments.row = ir_.Add(first_row_, row);
    arguments.first_column = ir_.Mul(ir_.Add(first_panel_, panel), ir_.Int(contraction_.panel));
    llvm::Value* valid = ir_.Min(left, ir_.Int(kSmallTileRows));
    std::function<void(size_t)> choose = [&](size_t n) {
      const Tile& tile = kind.tiles[n];
      auto call = [&] { CallTile(tile, row, valid, k_begin, arguments); };
      if (n + 1 == kind.tiles.size()) {
        call();
        return;
      }
      int64_t least = tile.addresses > 1 ? 2 : tile.rows;
      ir_.If(b.CreateICmpSGE(left, ir_.Int(least)), call, [&] { choose(n + 1); });
    };
    choose(0);
    for (size_t n = kind.tiles.size() - 2; n-- > 0;) {
      llvm::Value* rows = ir_.Int(kind.tiles[n].rows);
      valid = b.CreateSelect(b.CreateICmpSGE(left, rows), rows, valid);
    }
    llvm::Value* is_left = is_last;
    if (kind.tiles[0].finishes) {
      const Tile& least = *std::find_if(kind.tiles.rbegin(), kind.tiles.rend(),
                                        [](const Tile& tile) { return tile.finishes; });
      is_left = b.CreateAnd(b.CreateICmpSLT(left, ir_.Int(least.rows)), is_last);
    }
    ir_.If(is_left, [&] { EmitEpilogue(kind, panel, row, valid, c); });
    return ir_.Add(row, valid);
  });
}

void ContractionEmitter::CallTile(const Tile& tile, llvm::Value* row, llvm::Value* valid,
                                  llvm::Value* k_begin, const TileArguments& arguments) {
  Values values = {RowAddress(row, k_begin)};
  for (int64_t n = 1; n < tile.addresses; ++n) {
    llvm::Value* number = ir_.Min(ir_.Int(n), ir_.Sub(valid, ir_.Int(1)));
    values.push_back(ByteAt(values[0], ir_.Mul(number, ir_.Int(schedule_.a_row_bytes))));
  }
  values.insert(values.end(), {arguments.panel, arguments.count, arguments.c, arguments.accumulate,
                               arguments.next_panel});
  if (fetcher_.is_active()) {
    values.insert(values.end(), {arguments.next_rows, arguments.row_bytes});
  }
  if (tile.finishes) {
    values.insert(values.begin(), kernel_.function()->getArg(0));
    values.insert(values.end(),
                  {arguments.is_last, arguments.batch, arguments.row, arguments.first_column});
  }
  ir_.b().CreateCall(tile.function, values);
}

// The same rows' next block of k; after the last one the first of the rows that are packed next.
void ContractionEmitter::FindNextRows(llvm::Value* k_begin, llvm::Value* k_count) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* end = ir_.Add(k_begin, k_count);
  llvm::Value* is_last = schedule_.pack_whole_k ? b.getTrue() : b.CreateICmpSGE(end, steps_);
  llvm::Value* following = ir_.Add(first_row_, kernel_.Dim(schedule_.rows_per_task));
  llvm::Value* is_past = b.CreateICmpSGE(following, kernel_.Dim(schedule_.m));
  following = b.CreateSelect(is_past, ir_.Int(0), following);
  if (keeps_accumulators_ &&
      !schedule_.pack_whole_k) {  // the next group of panels packs the same rows again
    llvm::Value* last_group = ir_.Sub(kernel_.Dim(schedule_.panel_groups), ir_.Int(1));
    following = b.CreateSelect(b.CreateICmpSGE(group_, last_group), following, first_row_);
  }
  llvm::Value* row = b.CreateSelect(is_last, following, first_row_);
  llvm::Value* k = b.CreateSelect(is_last, ir_.Int(0), ir_.Mul(end, ir_.Int(schedule_.group)));
  fetcher_.SetNext(row, k);
}

// Of a row of the task, at the beginning of a block of k.
llvm::Value* ContractionEmitter::RowAddress(llvm::Value* row, llvm::Value* k_begin) {
  if (!schedule_.direct_a) {
    llvm::Value* offset = ir_.Mul(row, ir_.Int(schedule_.a_row_bytes));
    if (schedule_.pack_whole_k) {
      offset = ir_.Add(offset, ir_.Mul(k_begin, ir_.Int(schedule_.a_step_bytes)));
    }
    return ByteAt(packed_, offset);
  }
  Scope scope = frame_.RowScope({ir_.Add(first_row_, row)}, 1);
  scope.coordinates.back() = {ir_.Mul(k_begin, ir_.Int(schedule_.group))};
  return ExprEmitter(scope).AddressOf(contraction_.a);
}

llvm::Value* ContractionEmitter::AccumulatorAddress(llvm::Value* panel, llvm::Value* row) {
  if (!keeps_accumulators_) return accumulators_;
  llvm::Value* index = ir_.Add(ir_.Mul(panel, ir_.Int(schedule_.block_rows)), row);
  return ElementAt(accumulators_, ir_.Mul(index, ir_.Int(contraction_.panel)));
}

// --- Packing rows of a ---

// All of k of the task's rows, unless the task before has left them.
void ContractionEmitter::PackOnce(llvm::Value* task, llvm::Value* begin, llvm::Value* count) {
  llvm::Value* is_first = ir_.b().CreateICmpEQ(task, kernel_.function()->getArg(1));
  llvm::Value* is_new = ir_.b().CreateICmpEQ(group_, ir_.Int(0));
  ir_.If(ir_.b().CreateOr(is_first, is_new), [&] { EmitPack(begin, count); });
}

void ContractionEmitter::EmitPack(llvm::Value* begin, llvm::Value* count) {
  llvm::IRBuilder<>& b = ir_.b();
  llvm::Value* k_begin = ir_.Mul(begin, ir_.Int(schedule_.group));
  llvm::Value* k_end = ir_.Mul(ir_.Add(begin, count), ir_.Int(schedule_.group));
  if (schedule_.group > 1) k_end = ir_.Min(k_end, k_);
  // Numbers of a pair lie side by side.
  const bool words = schedule_.group > 1 && element_->isIntegerTy();
  llvm::Type* half = words ? static_cast<llvm::Type*>(b.getInt16Ty()) : b.getBFloatTy();
  llvm::Type* number = schedule_.dots ? half : element_;
  const llvm::Align alignment(static_cast<uint64_t>(schedule_.a_step_bytes / schedule_.group));
  ir_.Walk(
      first_row_, ir_.Add(first_row_, rows_), frame_.m_extents(),
      [&](llvm::Value* row, const Values& m) {
        llvm::Value* target =
            ByteAt(packed_, ir_.Mul(ir_.Sub(row, first_row_), ir_.Int(schedule_.a_row_bytes)));
        auto store = [&](llvm::Value* k, llvm::Value* values, int64_t lanes) {
          llvm::Type* type = Ir::Vector(number, lanes);
          if (words) {
            values = b.CreateSExtOrTrunc(values, type);
          } else if (schedule_.dots) {
            values = b.CreateFPTrunc(values, type);
          }
          b.CreateAlignedStore(values, b.CreateGEP(number, target, ir_.Sub(k, k_begin)), alignment);
        };
        const Scope scope = frame_.RowScope(m, 0);
        if (schedule_.pack_whole_k) {
          packer_.Pack(scope, store);
        } else {
          packer_.PackPart(scope, k_begin, k_end, store);
        }
        if (schedule_.group == 1) return;
        // What fills up the last pair meets zeros, and must be a number.
        ir_.If(b.CreateTrunc(ir_.Sub(k_end, k_begin), b.getInt1Ty()), [&] {
          b.CreateAlignedStore(llvm::Constant::getNullValue(number),
                               b.CreateGEP(number, target, ir_.Sub(k_end, k_begin)), alignment);
        });
      });
}

// --- Epilogue ---

void ContractionEmitter::EmitEpilogue(const Panel& kind, llvm::Value* panel, llvm::Value* row,
                                      llvm::Value* valid, llvm::Value* c) {
  llvm::Value* first_column = ir_.Mul(ir_.Add(first_panel_, panel), ir_.Int(contraction_.panel));
  llvm::Value* width = ir_.Min(ir_.Int(contraction_.panel), ir_.Sub(n_, first_column));
  llvm::Value* first = ir_.Add(first_row_, row);
  ir_.Walk(first, ir_.Add(first, valid), frame_.m_extents(), [&](llvm::Value* at, const Values& m) {
    llvm::Value* index = ir_.Mul(ir_.Sub(at, first), ir_.Int(contraction_.panel));
    EpilogueRow(kind, frame_.RowScope(m, 1), first_column, width, ElementAt(c, index));
  });
}

void ContractionEmitter::EpilogueRow(const Panel& kind, const Scope& row, llvm::Value* first_column,
                                     llvm::Value* width, llvm::Value* c_row) {
  if (contraction_.n.constant().has_value()) {
    int64_t columns = *contraction_.n.constant() % contraction_.panel;
    if (&kind == &whole_) columns = contraction_.panel;
    for (const Part& part : kind.parts) {
      EpilogueColumns(row, first_column, part.begin, std::min(part.lanes, columns - part.begin),
                      part.begin > 0, c_row);
    }
    return;
  }
  int64_t lanes = std::min(schedule_.lanes, contraction_.panel);
  auto loop = [&](int64_t step) {
    ir_.For(ir_.Int(0), width, step, [&](llvm::Value* i) {
      llvm::Value* at = step == 1 ? i : ir_.Min(i, ir_.Sub(width, ir_.Int(step)));
      frame_.WriteResult(row, ir_.Add(first_column, at), LoadSums(c_row, at, step), step);
    });
  };
  ir_.If(ir_.b().CreateICmpSGE(width, ir_.Int(lanes)), [&] { loop(lanes); }, [&] { loop(1); });
}

// A known number of columns, at most a vector. Where columns lie before them, vectors reach back
// rather than past the end; else they are cut into powers of two.
void ContractionEmitter::EpilogueColumns(const Scope& row, llvm::Value* first_column, int64_t begin,
                                         int64_t count, bool reaches_back, llvm::Value* c_row) {
  int64_t lanes = 1;
  while (lanes < count) lanes *= 2;
  if (lanes == count || (reaches_back && begin + count >= lanes)) {
    llvm::Value* at = ir_.Int(begin + count - lanes);
    frame_.WriteResult(row, ir_.Add(first_column, at), LoadSums(c_row, at, lanes), lanes);
    return;
  }
  EpilogueColumns(row, first_column, begin, lanes / 2, reaches_back, c_row);
  EpilogueColumns(row, first_column, begin + lanes / 2, count - lanes / 2, true, c_row);
}

// What sums become while they are in registers: no way through memory, and what is read for a
// column is read once for all rows.
void ContractionEmitter::Finish(KernelFunction& part, const std::vector<Part>& parts,
                                const TileArguments& arguments, const Values& sums) {
  Ir& ir = part.ir();
  ContractionFrame frame(part, contraction_);
  frame.SetBatch(arguments.batch);
  Values m = ir.Decompose(arguments.row, frame.m_extents());
  for (size_t n = 0; n < sums.size(); ++n) {
    const Part& columns = parts[n % parts.size()];
    if (n > 0 && n % parts.size() == 0) m = ir.Next(m, frame.m_extents());
    frame.WriteResult(frame.RowScope(m, 1), ir.Add(arguments.first_column, ir.Int(columns.begin)),
                      sums[n], columns.lanes);
  }
}

llvm::Value* ContractionEmitter::LoadSums(llvm::Value* c_row, llvm::Value* at, int64_t lanes) {
  return ir_.b().CreateAlignedLoad(Ir::Vector(element_, lanes), ElementAt(c_row, at),
                                   llvm::Align(static_cast<uint64_t>(element_bytes_)));
}

}  // namespace

void EmitContraction(KernelFunction& kernel, const Contraction& contraction, const Target& target) {
  ContractionEmitter(kernel, contraction, target).Run();
}

}  // namespace stampmill
