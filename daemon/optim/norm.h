// The sum of squares of a gradient, whose root is the norm for clipping in DecideUpdate().
#pragma once

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

}  // namespace gaccd
