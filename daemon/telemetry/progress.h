// Progress: the progress bar, one line of a terminal, redrawn at most 10 times per second.
//   epoch 2  ━━━━━━━╸┄┄┄┄┄┄┄┄  45%  1350/3000  loss 0.4127  lr 0.1  12.3k samples/s  1:34 left
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "daemon/telemetry/terminal.h"

namespace gaccd {

struct ProgressState {
  std::int64_t epoch = 1;
  std::int64_t step = 0;
  std::int64_t steps_total = 0;
  double loss = 0;
  double samples_per_s = 0;
  double eta_s = 0;
  double lr = 0;
};

// The line for a window of `columns` columns, at most columns - 1 wide. Parts that do not fit are
// omitted, the least important first. utf8 false: only ASCII.
[[nodiscard]] std::string ProgressLine(const ProgressState& state, int columns, bool utf8);

// "0:07", "1:34", "2:03:04", "3 days"; "?" if not finite or negative.
[[nodiscard]] std::string DurationText(double seconds);

// "987", "51.2k", "1.83M": at most five characters up to 10^21.
[[nodiscard]] std::string RateText(double rate);

// Thread-safe. Never waits for the terminal.
class Progress {
 public:
  Progress(Terminal terminal, bool utf8)
      : terminal_(std::move(terminal)), output_(terminal_.fd()), utf8_(utf8) {}
  ~Progress() { Clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Draws if the last drawing is 0.1 s old or this is the last step, and the terminal accepts
  // output.
  void Update(const ProgressState& state);
  // Prints a permanent line above the bar.
  void PrintAbove(std::string_view line);
  // Removes the bar.
  void Clear();

 private:
  void Draw();

  std::mutex mutex_;
  Terminal terminal_;
  TerminalOutput output_;
  const bool utf8_;
  bool shown_ = false;
  ProgressState state_;
  std::chrono::steady_clock::time_point drawn_;
};

}  // namespace gaccd
