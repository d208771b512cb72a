// Maps an exit code to the next step of the job. The only such mapping, used for verdict.json, the
// last event, the ledger and `gaccd verdict`. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace gaccd {

enum class NextStep : std::uint8_t { kDone, kRequeue, kNoRequeue, kFail };
[[nodiscard]] std::string_view Name(NextStep next);  // "done", "requeue", "norequeue", "fail"

inline constexpr int kSignalExit = 128;       // + the signal, as in a shell
inline constexpr int kOutOfMemoryExit = 253;  // of srun

// Whether an exit code means that a signal ended the process.
[[nodiscard]] constexpr bool IsSignalExit(int code) {
  return code > kSignalExit && code <= kSignalExit + 64;
}

//   exit code                                    next step
//   0                                            done
//   75 tempfail, 69 a peer is lost               requeue
//   71 the system or srun refused                requeue
//   128+n, killed or crashed                     requeue
//   93, 130: Ctrl-C twice, or killed by SIGINT   norequeue
//   253 out of memory, all others                fail
[[nodiscard]] NextStep SelectNextStep(int code);

}  // namespace gaccd
