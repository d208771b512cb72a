// Output of `gaccd help` and `gaccd version`.
#pragma once

#include <optional>
#include <string>
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

}  // namespace gaccd
