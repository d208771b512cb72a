// What to do with a run that ended, or stands still. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/watch/run_state.h"

namespace gaccd {

struct AdviceFacts {
  RunState state;
  bool stop_file = false;
  bool hold_file = false;
};

// Sentences for people, in the order in which to do them; commands in them can be pasted into a
// shell, whatever the folder is called.
[[nodiscard]] std::vector<std::string> Advise(const AdviceFacts& facts);

// `text` as one word of a shell, on one line: as it is, 'in quotes', or $'with escapes'.
[[nodiscard]] std::string ShellWord(std::string_view text);

}  // namespace gaccd
