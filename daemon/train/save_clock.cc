#include "daemon/train/save_clock.h"

#include <algorithm>
#include <array>
#include <span>

#include "collectives/base/time.h"

namespace gaccd {

std::int64_t UpdatesUntilNextCheck(double left_s, double every_s, double update_s,
                                   std::int64_t done) {
  constexpr double kMaxWait = 1;
  if (done < 1 || update_s <= 0) return 1;
  const double wait_s = std::min({left_s / 2, every_s / 100, kMaxWait});
  return static_cast<std::int64_t>(std::clamp(wait_s / update_s, 1.0, static_cast<double>(done)));
}

Result<bool> SaveClock::Due(Communicator& comm, std::int64_t step) {
  bool due = policy_.every_updates > 0 && step % policy_.every_updates == 0;
  if (policy_.every_seconds > 0 && step >= next_check_) {
    const Clock::time_point now = now_();
    const auto every = static_cast<double>(policy_.every_seconds);
    const double left = every - SecondsSince(last_save_, now);
    const double update =
        SecondsSince(last_check_, now) / static_cast<double>(step - checked_step_);
    std::array<std::int64_t, 2> word = {
        left <= 0 ? 1 : 0, UpdatesUntilNextCheck(left, every, update, step - last_step_)};
    GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span<std::int64_t>(word)), 0));
    due |= word[0] != 0;
    last_check_ = now;
    checked_step_ = step;
    next_check_ = step + word[1];
  }
  if (due) {
    last_save_ = now_();
    last_step_ = step;
    last_check_ = last_save_;
    checked_step_ = step;
    next_check_ = step + 1;
  }
  return due;
}

}  // namespace gaccd
