// The events of a run about its updates.
#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd::tests {

// The value of a key in a line of events.jsonl, without quotes; none if it lacks the key.
inline std::optional<std::string> EventValue(std::string_view line, std::string_view key) {
  const std::string before = StrCat("\"", key, "\":");
  const auto begin = line.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  line.remove_prefix(begin + before.size());
  if (line.starts_with('"')) line.remove_prefix(1);
  return std::string(line.substr(0, line.find_first_of(",\"}")));
}

// The values of a key in the events of a run of this name, "" where one has none.
inline std::vector<std::string> EventValues(const std::string& run_dir, const std::string& event,
                                            const std::string& key) {
  std::vector<std::string> values;
  for (const auto& file : std::filesystem::recursive_directory_iterator(run_dir)) {
    if (file.path().filename() != "events.jsonl") continue;
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      if (line.find(R"("ev":")" + event + '"') == std::string::npos) continue;
      values.push_back(EventValue(line, key).value_or(""));
    }
  }
  return values;
}

inline std::vector<std::string> StepValues(const std::string& run_dir, const std::string& key) {
  return EventValues(run_dir, "step", key);
}

}  // namespace gaccd::tests
