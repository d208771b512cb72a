// The sum of squares of a gradient, whose root is the norm that JudgeUpdate() clips by.
#pragma once

#include <span>

namespace gaccd {

// One pass, squares and sums in double (the square of a finite float never overflows there, so the
// sum is finite exactly when all values are). The order of the additions is fixed: 16 lanes a block
// of FlatLayout::kBlock values, blocks in order; so every machine gets the same bits.
[[nodiscard]] double SumOfSquares(std::span<const float> gradient);

// The same in two steps, so that ranks can share the work: of each block by itself, the last of
// which may be shorter; then SumInOrder() of those of all. REQUIRES: a place in `sums` for each.
void SquaresOfBlocks(std::span<const float> gradient, std::span<double> sums);
[[nodiscard]] double SumInOrder(std::span<const double> sums);

}  // namespace gaccd
