// The files STOP and SAVE in the run folder: what an operator can ask for without a signal. Looked
// for by one rank, at most once a second, by a stat() each: the folder is on a shared file system.
#pragma once

#include <chrono>
#include <string>

#include "collectives/base/result.h"
#include "daemon/control/stop_signals.h"

namespace gaccd {

// Not thread-safe.
class RequestFiles {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kPause{1};

  // run_dir empty: there are no files, wish() is always kNone.
  explicit RequestFiles(std::string run_dir) : run_dir_(std::move(run_dir)) {}

  // kStop or kSave while the file is there (as of the last look).
  [[nodiscard]] StopWish wish(Clock::time_point now = Clock::now());
  // Removes SAVE: it is served. STOP stays, so that a requeued attempt stops too.
  Status Saved();

 private:
  std::string run_dir_;
  StopWish wish_ = StopWish::kNone;
  Clock::time_point next_look_{};
};

}  // namespace gaccd
