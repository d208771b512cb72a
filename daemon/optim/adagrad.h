// Equals torch.optim.Adagrad with initial sums of 0.
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

// Adagrad (Duchi, Hazan and Singer, "Adaptive Subgradient Methods"), update t = 1, 2, ...:
//   d = g + decay p;  s = s + d d;  p = p - lr / (1 + (t - 1) lr_decay) * d / (sqrt(s) + epsilon)
struct AdagradFactors {
  float step_size;  // lr / (1 + (t - 1) lr_decay)
  float weight_decay;
  float epsilon;  // > 0, so that without gradients 0 / epsilon = 0
  float gradient_scale;
};

struct Adagrad {
  using Spec = AdagradSpec;
  using Factors = AdagradFactors;
  static constexpr std::string_view kName = "adagrad";
  static constexpr int kStates = 1;

  static Status Check(const AdagradSpec& spec);
  static AdagradFactors MakeFactors(const AdagradSpec& spec, const OptimizerGroup& group, double lr,
                                    std::int64_t update);
  GACCD_HOST_DEVICE static void Update(const AdagradFactors& f, float gradient, float* param,
                                       float* sum) {
    const float d = gradient * f.gradient_scale + f.weight_decay * *param;
    const float s = *sum + d * d;
    *sum = s;
    *param -= f.step_size * d / (sqrtf(s) + f.epsilon);
  }
  static void Loop(AdagradFactors f, std::size_t n, const float* g, float* p, float* s);
};

}  // namespace gaccd
