// The sum of squares of a gradient, whose root is the norm that JudgeUpdate() clips by.
#pragma once

#include <span>

namespace gaccd {

// One pass, squares and sums in double (the square of a finite float never overflows there, so the
// sum is finite exactly when all values are). The order of the additions is fixed: 16 lanes a block
// of 4096 values, blocks in order; so every machine gets the same bits.
[[nodiscard]] double SumOfSquares(std::span<const float> gradient);

}  // namespace gaccd
