#include "daemon/watch/advice.h"

#include <algorithm>
#include <cctype>

#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/rundir/next_step.h"
#include "daemon/telemetry/progress.h"

namespace gaccd {
namespace {

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("._/+:@%-,=").find(c) != std::string_view::npos;
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }

// What an exit code means for the user; the reason stands above.
std::string AfterExit(int exit, const std::string& folder) {
  constexpr std::string_view kMemory =
      "give the job more memory (--mem), or set a smaller --micro-batch";
  if (exit == kOutOfMemoryExit) return std::string(kMemory);
  if (IsSignalExit(exit)) {
    return StrCat("a signal ended it; if the kernel did so for its memory, ", kMemory,
                  "; else start it again: it goes on from its newest checkpoint");
  }
  switch (static_cast<ErrorKind>(exit)) {
    case ErrorKind::kUsage:
    case ErrorKind::kConfig:
      return "mend the flags or the job text as the reason says, and start it again";
    case ErrorKind::kData:
      return StrCat("mend the file that the reason names; of a checkpoint: gaccd ckpt verify ",
                    folder);
    case ErrorKind::kInternal:
      return "this is a fault of gaccd: report it with the run folder";
    case ErrorKind::kIo:
      return "make room, or give the rights that the reason names, and start it again";
    case ErrorKind::kUnavailable:
    case ErrorKind::kOs:
    case ErrorKind::kTempFail:
    case ErrorKind::kInterrupted:
      return "start it again: it goes on from its newest checkpoint; slurm/launch does so by "
             "itself";
    case ErrorKind::kNoRequeue:
      break;
  }
  return "started again as it is it would end so again: change what the reason names";
}

std::string OfARunThatLives(const RunState& state, const std::string& folder) {
  constexpr double kStill = 60;  // seconds, and so many updates
  constexpr double kUpdates = 10;
  if (state.failed_saves > 0) {
    return "make room for its checkpoints: the last saves failed, and after more it ends";
  }
  const double still = std::max(kStill, kUpdates * state.dur_p50_s.value_or(0));
  if (state.step_age_s.value_or(0) > still) {
    return StrCat("its last update ended ", DurationText(*state.step_age_s),
                  " ago; what the ranks do: gaccd logs --follow ", folder);
  }
  return "nothing: it runs";
}

}  // namespace

std::string ShellWord(std::string_view text) {
  if (!text.empty() && std::ranges::all_of(text, IsPlain)) return std::string(text);
  const bool escapes = std::ranges::any_of(text, IsControl);
  std::string word = escapes ? "$'" : "'";
  for (const char c : text) {
    if (c == '\'') {
      word += escapes ? "\\'" : "'\\''";
    } else if (escapes && (IsControl(c) || c == '\\')) {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto byte = static_cast<unsigned char>(c);
      word += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::vector<std::string> Advise(const AdviceFacts& facts) {
  const RunState& state = facts.state;
  const std::string folder = ShellWord(state.folder);
  std::vector<std::string> advice;
  if (facts.stop_file && state.phase != RunPhase::kDone) {
    advice.push_back(StrCat("it is not started while the file STOP is there: rm ",
                            ShellWord(state.folder + "/STOP")));
  }
  if (facts.hold_file && state.phase != RunPhase::kDone) {
    advice.push_back(StrCat("restarts did not help, so it is held; when the cause is gone: rm ",
                            ShellWord(state.folder + "/HOLD")));
  }
  switch (state.phase) {
    case RunPhase::kSubmitted:
      advice.push_back(StrCat("nothing: it waits for SLURM; why: squeue --jobs=", state.submitted));
      break;
    case RunPhase::kStarting:
    case RunPhase::kRunning:
      advice.push_back(OfARunThatLives(state, folder));
      break;
    case RunPhase::kStale:
      advice.push_back(StrCat("look whether host ", state.host, " and job ", state.job,
                              " still live: rank 0 has written nothing for ",
                              DurationText(state.age_s)));
      break;
    case RunPhase::kDone:
      advice.emplace_back("nothing: the training is complete");
      break;
    case RunPhase::kStopped:
    case RunPhase::kFailed:
      if (!facts.stop_file) advice.push_back(AfterExit(state.exit.value_or(0), folder));
      break;
  }
  if (!state.suspect_hosts.empty()) {
    advice.push_back(StrCat("without the suspected hosts: sbatch --exclude=", state.suspect_hosts));
  }
  return advice;
}

}  // namespace gaccd
