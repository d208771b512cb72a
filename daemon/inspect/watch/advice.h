// What to do with a run that ended or is stuck. Pure.
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
  bool disk_full = false;  // of the run folder
};

// A sentence for people, in English and in Chinese. Commands in it can be pasted into a shell,
// whatever the folder is called.
struct Advice {
  std::string en;
  std::string zh;
};

// In the order in which to do them.
[[nodiscard]] std::vector<Advice> Advise(const AdviceFacts& facts);

// `text` as one word of a shell, on one line: as it is, 'in quotes', or $'with escapes'.
[[nodiscard]] std::string ShellWord(std::string_view text);

}  // namespace gaccd
