// Every flag and every job field with its explanation, from the tables in proto/: the source of
// help, manual page and shell completion.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "daemon/config/flags.h"

namespace gaccd {

struct HelpEntry {
  std::string head;  // "--rounding=CHOICE", "batch.micro"
  std::string text;
  std::string choices;  // "exact, floor, ceil or nearest"; empty: any value
};
struct HelpGroup {
  std::string_view heading;
  std::vector<HelpEntry> entries;
};

[[nodiscard]] std::string_view HelpNotes();  // on all verbs: examples, exit codes
[[nodiscard]] std::string_view JobUsage();   // before the fields of the job
[[nodiscard]] std::vector<HelpGroup> FlagGroups(Verb verb);
[[nodiscard]] std::vector<HelpEntry> JobEntries();

}  // namespace gaccd
