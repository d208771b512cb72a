// Output of `gaccd help` and `gaccd version`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/flags.h"

namespace gaccd {

// topic: for HelpPage::kVerb, the verb; empty: all verbs.
[[nodiscard]] std::string HelpText(HelpPage page, std::optional<Verb> topic);

// `gaccd help job WORD`: the job fields with this name or in a group with this name, otherwise
// those whose name contains it. kUsage, with the nearest name, if there is none.
[[nodiscard]] Result<std::string> JobFieldHelp(const std::string& word);

// A library and its versions: loaded and compiled with.
using Version = std::pair<std::string, std::string>;

// gaccd with its revision, the libraries of this folder, then `more`, which only the caller knows
// (MPI, oneDNN, CUDA, ...). One line each, wrapped at 80 columns.
[[nodiscard]] std::string VersionText(const std::vector<Version>& more);

// The linker's build id of this program, in hex: equal only for equal binaries. Empty if the
// program was linked without one.
[[nodiscard]] std::string BuildId();

// Every flag and every job field with its explanation, from the tables in proto/: the source of
// help, manual page and shell completion.
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
