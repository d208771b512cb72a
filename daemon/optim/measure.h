// What is measured of flat buffers: the sum of squares of a gradient, whose root is the norm for
// clipping in DecideUpdate(), and a digest of parameters to compare replicas.
#pragma once

#include <cstdint>
#include <span>

namespace gaccd {

// One pass; squares and sums in double. The square of a finite float does not overflow there, so
// the sum is finite exactly if all values are. The order of additions is fixed (16 lanes per block
// of FlatLayout::kBlock values, blocks in order), so every machine gets the same bits.
[[nodiscard]] double SumOfSquares(std::span<const float> gradient);

// The same in two steps, so that ranks can share the work: sums of each block (the last may be
// shorter), then SumInOrder() of the sums of all blocks. REQUIRES: one element of `sums` per block.
void BlockSquares(std::span<const float> gradient, std::span<double> sums);
[[nodiscard]] double SumInOrder(std::span<const double> sums);

// A function of the bits and positions of all values: the sum over j, modulo 2^64, of
// Mix64(w_j + (j + 1) * kGoldenStep); w_j are the bits of values 2j and 2j + 1 (an unpaired last
// value: with 0). Mix64 (daemon/tensor/random.h) is a bijection, so a change of one word always
// changes the digest. Digests of parts can be added:
//   ComputeDigest(all) == ComputeDigest(part one) + ComputeDigest(part two, its first value)
// Not cryptographic. REQUIRES: first, the position of values[0], is even.
[[nodiscard]] std::uint64_t ComputeDigest(std::span<const float> values, std::int64_t first = 0);

}  // namespace gaccd
