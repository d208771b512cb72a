#include "daemon/optim/rules.h"

#include "collectives/base/simd.h"

namespace gaccd {

GACCD_SIMD_CLONES
void AverageLoop(float rate, std::size_t n, const float* __restrict weights,
                 float* __restrict averages) {
  for (std::size_t i = 0; i < n; ++i) AddToAverage(rate, weights[i], averages + i);
}

}  // namespace gaccd
