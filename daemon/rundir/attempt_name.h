// The name of an attempt's folder, NNN-<job>: the number of the attempt, three to nine digits, and
// its job. A second run of the same SLURM job has the suffix ".2", and so on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gaccd {

struct AttemptName {
  int number = 0;
  std::string job;  // "8123456", "local-4711"; without the suffix
};

// Parses "001-8123456", "001-8123456.2"; empty for any other name.
[[nodiscard]] std::optional<AttemptName> ParseAttemptName(std::string_view name);
[[nodiscard]] std::string FormatAttemptName(int number, std::string_view job);

}  // namespace gaccd
