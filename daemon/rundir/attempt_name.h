// The name of an attempt's folder, NNN-<job>: the number of the attempt, three to nine digits, and
// the job it belongs to. A second run of the same SLURM job adds ".2", and so on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gaccd {

struct AttemptName {
  int number = 0;
  std::string job;  // "8123456", "local-4711"; without ".2"
};

// "001-8123456", "001-8123456.2"; nothing for any other name.
[[nodiscard]] std::optional<AttemptName> ParseAttemptName(std::string_view name);
[[nodiscard]] std::string FormatAttemptName(int number, std::string_view job);

}  // namespace gaccd
