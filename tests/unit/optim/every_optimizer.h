// Every optimiser in every form, with a learning rate.
#pragma once

#include "daemon/config/job.h"

namespace gaccd::tests {

struct NamedOptimizer {
  const char* name;
  OptimizerSpec spec;
};
inline const NamedOptimizer kEveryOptimizer[] = {
    {"sgd", {0.1, SgdSpec{}}},
    {"sgd_decay", {0.1, SgdSpec{.weight_decay = 0.01}}},
    {"sgd_momentum", {0.1, SgdSpec{.momentum = 0.9, .weight_decay = 0.01}}},
    {"sgd_nesterov", {0.1, SgdSpec{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}},
    {"adagrad", {0.1, AdagradSpec{.lr_decay = 0.25, .weight_decay = 0.01}}},
    {"sgd_ema", {.lr = 0.1, .kind = SgdSpec{}, .ema = EmaSpec{0.75}}},
    {"adamw", {0.001, AdamWSpec{}}},
    {"adamw_ema", {.lr = 0.001, .kind = AdamWSpec{}, .ema = EmaSpec{0.999}}},
};

}  // namespace gaccd::tests
