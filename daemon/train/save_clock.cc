#include "daemon/train/save_clock.h"

#include <algorithm>
#include <array>
#include <span>

#include "collectives/base/seconds.h"

namespace gaccd {

std::int64_t UpdatesUntilNextCheck(double elapsed_s, std::int64_t updates, double every_s) {
  constexpr double kMax = 1e6;
  if (updates < 1 || elapsed_s <= 0) return 1;
  const double left = (every_s - elapsed_s) * static_cast<double>(updates) / elapsed_s / 2;
  return static_cast<std::int64_t>(std::clamp(left, 1.0, kMax));
}

Result<bool> SaveClock::Due(Communicator& comm, std::int64_t step) {
  bool due = policy_.every_updates > 0 && step % policy_.every_updates == 0;
  if (policy_.every_seconds > 0 && step >= next_check_) {
    const double elapsed = SecondsSince(last_save_, now_());
    const auto every = static_cast<double>(policy_.every_seconds);
    std::array<std::int64_t, 2> word = {elapsed >= every ? 1 : 0,
                                        UpdatesUntilNextCheck(elapsed, step - last_step_, every)};
    GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::int64_t>(word)), 0));
    due |= word[0] != 0;
    next_check_ = step + word[1];
  }
  if (due) {
    last_save_ = now_();
    last_step_ = step;
    next_check_ = step + 1;
  }
  return due;
}

}  // namespace gaccd
