// Two kinds of step, each of one shuffle for a pair of vectors: elements change places within
// blocks of 128 bits, where every instruction set can interleave two vectors; then whole blocks
// change places between vectors.
#include "compiler/llvm/transpose.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/check.h"

namespace stampmill {
namespace {

constexpr size_t kBlockBits = 128;

// One half of each block of `a` and `b`, an element of the one and of the other in turn.
llvm::Value* Interleaved(Ir& ir, llvm::Value* a, llvm::Value* b, size_t lanes, size_t block,
                         size_t half) {
  std::vector<int> picks;
  for (size_t first = 0; first < lanes; first += block) {
    for (size_t n = 0; n < block / 2; ++n) {
      size_t at = first + half * block / 2 + n;
      picks.push_back(static_cast<int>(at));
      picks.push_back(static_cast<int>(lanes + at));
    }
  }
  return ir.b().CreateShuffleVector(a, b, picks);
}

// Every other block of `a`, then of `b`, beginning with block `odd`.
llvm::Value* Alternating(Ir& ir, llvm::Value* a, llvm::Value* b, size_t lanes, size_t block,
                         size_t odd) {
  std::vector<int> picks;
  for (size_t first = odd * block; first < 2 * lanes; first += 2 * block) {
    for (size_t n = 0; n < block; ++n) picks.push_back(static_cast<int>(first + n));
  }
  return ir.b().CreateShuffleVector(a, b, picks);
}

}  // namespace

Ir::Values EmitTransposed(Ir& ir, Ir::Values rows) {
  const size_t lanes = rows.size();
  CHECK(std::has_single_bit(lanes));
  CHECK_EQ(Ir::Lanes(rows[0]), static_cast<int64_t>(lanes));
  if (lanes == 1) return rows;
  const size_t block =
      std::min<size_t>(lanes, kBlockBits / rows[0]->getType()->getScalarSizeInBits());
  const size_t blocks = lanes / block;
  Ir::Values next(lanes);
  // Afterwards vector g * block + x has, in block k, rows g * block ... of column k * block + x.
  for (size_t step = 1; step < block; step *= 2) {
    for (size_t group = 0; group < lanes; group += block) {
      for (size_t n = 0; n < block / 2; ++n) {
        llvm::Value* a = rows[group + n];
        llvm::Value* b = rows[group + n + block / 2];
        next[group + 2 * n] = Interleaved(ir, a, b, lanes, block, 0);
        next[group + 2 * n + 1] = Interleaved(ir, a, b, lanes, block, 1);
      }
    }
    rows = next;
  }
  // The vectors of one x lie `block` apart.
  for (size_t step = 1; step < blocks; step *= 2) {
    for (size_t x = 0; x < block; ++x) {
      for (size_t n = 0; n < blocks / 2; ++n) {
        llvm::Value* a = rows[2 * n * block + x];
        llvm::Value* b = rows[(2 * n + 1) * block + x];
        next[n * block + x] = Alternating(ir, a, b, lanes, block, 0);
        next[(n + blocks / 2) * block + x] = Alternating(ir, a, b, lanes, block, 1);
      }
    }
    rows = next;
  }
  return rows;
}

}  // namespace stampmill
