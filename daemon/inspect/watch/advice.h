// Advice for a run that ended or is stuck. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/inspect/watch/run_state.h"

namespace gaccd {

struct AdviceFacts {
  RunState state;
  bool stop_file = false;
  bool hold_file = false;
  bool disk_full = false;  // the disk of the run folder
  bool disk_read_only = false;
  bool has_checkpoint = true;  // the run folder has one with a manifest
  double attempt_age_s = 0;    // since the newest attempt began; 0: unknown
};

// A sentence in English and Chinese. Commands in it can be pasted into a shell, also for folders
// with special characters.
struct Advice {
  std::string en;
  std::string zh;
};

// In order of execution.
[[nodiscard]] std::vector<Advice> Advise(const AdviceFacts& facts);

// `text` as one shell word on one line: unchanged, 'in quotes', or $'with escapes'.
[[nodiscard]] std::string ShellWord(std::string_view text);

}  // namespace gaccd
