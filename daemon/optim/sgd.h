// Equals torch.optim.SGD with dampening 0; one rule (rules.h) per variant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/host_device.h"

namespace gaccd {

// d = g + decay p;  m = momentum m + d;  p -= lr m   (Nesterov: p -= lr (d + momentum m))
// The state starts at 0, so the first m is d, as in PyTorch.
struct SgdFactors {
  float lr;
  float momentum;
  float weight_decay;
  float gradient_scale;
};

GACCD_HOST_DEVICE inline float DecayedGradient(const SgdFactors& f, float param, float gradient) {
  return gradient * f.gradient_scale + f.weight_decay * param;
}

// Common part of all variants.
struct Sgd {
  using Spec = SgdSpec;
  using Factors = SgdFactors;
  static constexpr std::string_view kName = "sgd";

  static Status Check(const SgdSpec& spec);
  static SgdFactors MakeFactors(const SgdSpec& spec, const OptimizerGroup& group, double lr,
                                std::int64_t update);
};

struct PlainSgd : Sgd {
  static constexpr int kStates = 0;
  GACCD_HOST_DEVICE static void Update(const SgdFactors& f, float gradient, float* param) {
    *param -= f.lr * DecayedGradient(f, *param, gradient);
  }
  static void Loop(SgdFactors f, std::size_t n, const float* g, float* p);
};

struct MomentumSgd : Sgd {
  static constexpr int kStates = 1;
  GACCD_HOST_DEVICE static void Update(const SgdFactors& f, float gradient, float* param,
                                       float* momentum) {
    const float m = f.momentum * *momentum + DecayedGradient(f, *param, gradient);
    *momentum = m;
    *param -= f.lr * m;
  }
  static void Loop(SgdFactors f, std::size_t n, const float* g, float* p, float* m);
};

struct NesterovSgd : Sgd {
  static constexpr int kStates = 1;
  GACCD_HOST_DEVICE static void Update(const SgdFactors& f, float gradient, float* param,
                                       float* momentum) {
    const float d = DecayedGradient(f, *param, gradient);
    const float m = f.momentum * *momentum + d;
    *momentum = m;
    *param -= f.lr * (d + f.momentum * m);
  }
  static void Loop(SgdFactors f, std::size_t n, const float* g, float* p, float* m);
};

}  // namespace gaccd
