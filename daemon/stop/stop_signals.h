// What signals ask of a run, as one request, which the trainer asks for in every phase. A handler
// only sets a flag; that all ranks act on it alike is the trainer's matter: the request rides on a
// reduction. It runs on a stack of its own, because oneDNN's f32 products (before 3.12) point the
// stack pointer into a buffer of the heap, which a handler's frame would overwrite (issue 4845 of
// uxlfoundation/oneDNN).
//
//   SIGTERM, SIGUSR1, SIGUSR2           stop: save if there is time, exit to be requeued
//   (--stop-signals)
//   the same once more, or SIGINT twice stop now: exit without saving
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
[[nodiscard]] std::string_view Name(StopRequest request);  // "none", "save", "stop", "stop now"

// "USR2,TERM" -> signal numbers. kUsage, quoting the name: none of TERM, USR1, USR2, ALRM, XCPU.
Result<std::vector<int>> ParseSignals(std::string_view names);
[[nodiscard]] std::string SignalName(int signal);  // "SIGUSR2"

// One per process, as signals are. Made early, so that a signal during start-up is not lost.
// request() may be asked by any thread; the rest belongs to the thread that made it, which alone
// gets signals (see StartThread()). A CrashHandler made after it on that thread ends before it.
class StopSignals {
 public:
  static constexpr std::chrono::milliseconds kBurst{2000};
  // burst: of tests. SIGINT counts again after a twentieth of it: a person presses twice.
  static Result<std::unique_ptr<StopSignals>> Install(const std::vector<int>& stop_signals,
                                                      std::chrono::milliseconds burst = kBurst);
  // The handlers that were there before come back.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] StopRequest request() const;
  // The last signal that asked to stop; 0: none did.
  [[nodiscard]] int stop_signal() const;
  // Whether this signal asked to stop.
  [[nodiscard]] bool came(int signal) const;
  // When the first SIGTERM came; none came: empty.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> term_time() const;
  // A request to save is fulfilled: it is forgotten. Requests to stop stay.
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
