#include "daemon/device/cpu/f64_product.h"

#include "collectives/base/simd.h"

namespace gaccd {

GACCD_SIMD_CLONES
void AddF64Products(const double* a, const double* b, std::int64_t rows, double* sums) {
  constexpr std::int64_t kAtOnce = 4;  // fewer reads and writes of the sums
  static_assert(kF64Depth % kAtOnce == 0);
  for (std::int64_t i = 0; i < rows; ++i, a += kF64Depth, sums += kF64Columns) {
    for (std::int64_t l = 0; l < kF64Depth; l += kAtOnce) {
      const double* const row = b + l * kF64Columns;
      GACCD_INDEPENDENT_ITERATIONS
      for (std::int64_t j = 0; j < kF64Columns; ++j) {
        sums[j] += a[l] * row[j] + a[l + 1] * row[j + kF64Columns] +
                   a[l + 2] * row[j + 2 * kF64Columns] + a[l + 3] * row[j + 3 * kF64Columns];
      }
    }
  }
}

}  // namespace gaccd
