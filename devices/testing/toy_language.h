// A language of few tokens, as C and as C++: what the kernel `language` of the test kernels speaks,
// and what tests expect of it.
//
// A token's key depends on it and on the keys of all before it, so that a cache with one wrong
// block shows. Mostly the next token follows from the last alone, so that texts repeat themselves,
// as real ones do; else from all of it, the seed and the position.
#pragma once

#include <stdint.h>

static inline uint64_t ToyMix(uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

// `context`: the keys of all tokens before, folded one after the other, from 0.
static inline uint64_t ToyKey(uint64_t context, int32_t token) {
  return ToyMix(context ^ (uint64_t)(uint32_t)(token + 1));
}
static inline uint64_t ToyFold(uint64_t context, uint64_t key) { return ToyMix(context + key); }

// What the scores behind a token come from; `seed` counts where `samples`.
static inline uint64_t ToyState(uint64_t key, int32_t token, int samples, uint64_t seed,
                                int64_t position) {
  const uint64_t all = samples ? ToyMix(key ^ ToyMix(seed + (uint64_t)position)) : key;
  return all % 8 != 0 ? ToyMix((uint64_t)(uint32_t)token + 77) : all;
}
// Tokens that were there change all scores.
static inline uint64_t ToySeen(uint64_t state, int32_t token, int32_t in_prompt, int32_t times) {
  return state + ToyMix(((uint64_t)(uint32_t)token << 32) + (uint64_t)(4 * times + in_prompt));
}

// The score of a token, as its log-probability: below 0; the likeliest is chosen.
static inline float ToyScore(uint64_t state, int32_t token) {
  return -1 - (float)(ToyMix(state ^ (uint64_t)(uint32_t)(3 * token + 1)) >> 42);
}
