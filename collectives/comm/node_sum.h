// The summing loops of the node-local collectives: element by element over the copies that the
// ranks of one node keep in shared memory.
//
// Order: always ((rank 0 + rank 1) + rank 2) + ..., whoever computes and however the elements are
// divided among the ranks, so that a result has the same bits everywhere and in every run.
// Integers wrap around. Pure functions on disjoint ranges; the caller synchronises.
#pragma once

#include <cstddef>
#include <span>

#include "collectives/base/dtype.h"
#include "collectives/comm/sum.h"

namespace gaccd {

// copies[r][i] = sum over r of copies[r][i], for i in slice and every r.
void SumToAll(DType dtype, std::span<void* const> copies, Slice slice);

// out[i] = sum over r of copies[r][slice.first + i]. out may be copies[r] + slice.first of any r.
void SumTo(DType dtype, std::span<void* const> copies, Slice slice, void* out);

}  // namespace gaccd
