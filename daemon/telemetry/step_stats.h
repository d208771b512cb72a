// How long updates take: a window of the newest durations.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace gaccd {

// Not thread-safe. Seconds.
class StepStats {
 public:
  static constexpr std::size_t kWindow = 256;

  void Add(double seconds);

  [[nodiscard]] std::size_t count() const { return count_; }
  // The smallest duration of the window that at least this share (0..1] of it does not exceed; 0
  // when there is none.
  [[nodiscard]] double Quantile(double share) const;
  [[nodiscard]] double Mean() const;
  // Expected time for so many more updates: the mean of the window times that. The mean, not the
  // median, so that pauses (evaluation, checkpoints) inside an update count.
  [[nodiscard]] double Remaining(std::int64_t updates) const;

 private:
  std::array<double, kWindow> window_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;  // at most kWindow
};

}  // namespace gaccd
