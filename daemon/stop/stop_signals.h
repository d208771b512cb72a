// StopSignals: signals to a run, combined into one request, which the trainer queries in every
// phase. A handler only sets a flag; the trainer makes all ranks act alike, by summing the requests
// in a reduction. Handlers run on an alternate stack, because oneDNN's f32 products (before 3.12)
// point the stack pointer into a heap buffer, which a handler's frame would overwrite (issue 4845
// of uxlfoundation/oneDNN).
//
//   SIGTERM, SIGUSR1, SIGUSR2           stop: save if there is time, exit to be requeued
//   (--stop-signals)
//   the same again, or SIGINT twice     stop now: exit without saving
//                                       (within kBurst it is the same request: one scancel reaches
//                                       a rank through slurmstepd and through srun)
//   SIGHUP                              save and continue
//   SIGINT                              stop
#pragma once

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/thread.h"

namespace gaccd {

enum class StopRequest : std::uint8_t { kNone, kSave, kStop, kStopNow };

// "USR2,TERM" -> signal numbers. kUsage, quoting the name: none of TERM, USR1, USR2, ALRM, XCPU.
Result<std::vector<int>> ParseSignals(std::string_view names);
[[nodiscard]] std::string SignalName(int signal);  // "SIGUSR2"

// One per process. Created early, so that a signal during start-up is not lost. request() is
// thread-safe; other functions are used by the thread that created it, the only one to receive
// signals (see StartThread()). A CrashHandler created after it on that thread must end before it.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds kBurst{2000};
  // burst: for tests. A second SIGINT counts after a twentieth of it: a user presses Ctrl-C twice.
  static Result<std::unique_ptr<StopSignals>> Install(const std::vector<int>& stop_signals,
                                                      std::chrono::milliseconds burst = kBurst);
  // Restores the previous handlers.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] StopRequest request() const;
  // The last signal that requested a stop; 0: none.
  [[nodiscard]] int stop_signal() const;
  // Whether this signal requested a stop.
  [[nodiscard]] bool was_received(int signal) const;
  // Time of the first SIGTERM; empty: none.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> term_time() const;
  // A request to save is fulfilled and cleared. Requests to stop are kept.
  void Saved();

 private:
  StopSignals() = default;

  struct Old {
    int signal;
    struct sigaction action;
  };
  SignalStack stack_;
  std::vector<Old> old_;
};

}  // namespace gaccd
