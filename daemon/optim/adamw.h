// Equals torch.optim.AdamW without amsgrad.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/host_device.h"

namespace gaccd {

// AdamW (Loshchilov and Hutter, "Decoupled Weight Decay Regularization"), update t = 1, 2, ...:
//   m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g g
//   p = p (1 - lr decay) - lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + epsilon)
struct AdamWFactors {
  float beta1;
  float one_minus_beta1;
  float beta2;
  float one_minus_beta2;
  float keep;        // 1 - lr * decay
  float step_size;   // lr / (1 - b1^t)
  float root_scale;  // 1 / sqrt(1 - b2^t)
  float epsilon;     // > 0, so that without gradients 0 / epsilon = 0
  float gradient_scale;
};

struct AdamW {
  using Spec = AdamWSpec;
  using Factors = AdamWFactors;
  static constexpr std::string_view kName = "adamw";
  static constexpr int kStates = 2;

  static Status Check(const AdamWSpec& spec);
  static AdamWFactors MakeFactors(const AdamWSpec& spec, const OptimizerGroup& group, double lr,
                                  std::int64_t update);
  GACCD_HOST_DEVICE static void Update(const AdamWFactors& f, float gradient, float* param,
                                       float* first, float* second) {
    const float g = gradient * f.gradient_scale;
    const float m = f.beta1 * *first + f.one_minus_beta1 * g;
    const float v = f.beta2 * *second + f.one_minus_beta2 * g * g;
    *first = m;
    *second = v;
    *param = f.keep * *param - f.step_size * m / (sqrtf(v) * f.root_scale + f.epsilon);
  }
  static void Loop(AdamWFactors f, std::size_t n, const float* g, float* p, float* m, float* v);
};

}  // namespace gaccd
