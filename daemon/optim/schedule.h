// The learning rate of an update: a pure function, so a restarted run needs no schedule state.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

// base_lr * lr_factor * warmup(u) * shape(u), u = update, counted from 0; n = total_updates,
// w = warmup_updates, f = final_ratio.
//   warmup(u) | (u + 1) / w while u < w, then 1: update 0 takes 1/w, update w-1 the full rate
//   constant  | 1
//   cosine    | 1 while u < w; then f + (1 - f) (1 + cos(pi t)) / 2, t = (u - w) / (n - 1 - w);
//             | f is reached at the last update, and kept after it
//   linear    | 1 while t <= h, h = hold_ratio; then f + (1 - f) (1 - (t - h) / (1 - h))
//   step      | gamma ^ floor(u / every_updates)
// REQUIRES: update >= 0, total_updates >= 1, a spec that CheckSchedule() accepts.
[[nodiscard]] double LearningRate(const ScheduleSpec& spec, double base_lr, double lr_factor,
                                  std::int64_t update, std::int64_t total_updates);

// LearningRate() with a given t of cosine and linear.
[[nodiscard]] double LearningRateAt(const ScheduleSpec& spec, double base_lr, double lr_factor,
                                    std::int64_t update, double t);

// Error kConfig with the offending value: warmup_updates < 0, every_updates < 1, gamma or
// final_ratio negative or not finite, hold_ratio outside [0, 1].
Status CheckSchedule(const ScheduleSpec& spec);

}  // namespace gaccd
