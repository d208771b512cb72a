// What `gaccd help` and `gaccd version` print.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/flags.h"

namespace gaccd {

// What `gaccd help` prints. `topic`, of HelpPage::kVerb: the verb; none: all verbs.
[[nodiscard]] std::string HelpText(HelpPage page, std::optional<Verb> topic);

// `gaccd help job WORD`: the fields of the job with this name or in a group of this name, else
// those whose name holds it. kUsage, with the nearest name, when there is none.
[[nodiscard]] Result<std::string> JobHelpOf(const std::string& word);

// A library and its version, or versions: loaded and compiled with.
using Version = std::pair<std::string, std::string>;

// gaccd with its revision, the libraries of this folder, then `more`, which only the caller knows
// (MPI, oneDNN, CUDA, ...). One line each, continued where it is longer than 80 columns.
[[nodiscard]] std::string VersionText(const std::vector<Version>& more);

// "0.1.0", and the revision of the sources: "960e1fd", or "960e1fd-dirty" with local changes.
[[nodiscard]] std::string GaccdVersion();
[[nodiscard]] std::string GaccdRevision();

// The linker's build id of this program, in hex: equal only for equal binaries. Empty when the
// program was linked without one.
[[nodiscard]] std::string BuildId();

}  // namespace gaccd
