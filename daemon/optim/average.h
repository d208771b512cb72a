// Exponential moving average of weights, equal to torch.optim.swa_utils.AveragedModel with
// get_ema_multi_avg_fn(decay), updated after every optimizer.step(). After update t:
//   t = 1: a = w;   t > 1: a = a + (1 - decay) (w - a), which is decay a + (1 - decay) w
#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/config/job.h"
#include "daemon/tensor/host_device.h"

namespace gaccd {

// The factor of w - a. 1 replaces the average.
[[nodiscard]] inline float AverageRate(const EmaSpec& ema, std::int64_t update) {
  return update == 1 ? 1.0F : static_cast<float>(1 - ema.decay);
}

GACCD_HOST_DEVICE inline void AddToAverage(float rate, float weight, float* average) {
  *average += rate * (weight - *average);
}
void AverageLoop(float rate, std::size_t n, const float* weights, float* averages);

}  // namespace gaccd
