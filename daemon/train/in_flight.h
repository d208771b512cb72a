// An update that the engine has begun and whose result Engine::PopResult() has not returned yet.
#pragma once

#include <cstdint>

#include "daemon/data/update_schedule.h"

namespace gaccd {

struct UpdateInFlight {
  Update update;
  std::int64_t micro_steps = 1;
  std::int64_t restored = 0;  // samples restored from an earlier attempt
  double lr = 0;
  double loss_scale = 1;

  [[nodiscard]] std::int64_t step() const { return update.index + 1; }
};

}  // namespace gaccd
