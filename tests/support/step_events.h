// The events of a run about its updates.
#pragma once

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace gaccd::tests {

// The values of a key in the events of a run of this name, "" where one has none.
inline std::vector<std::string> OfEvents(const std::string& run_dir, const std::string& event,
                                         const std::string& key) {
  std::vector<std::string> values;
  for (const auto& file : std::filesystem::recursive_directory_iterator(run_dir)) {
    if (file.path().filename() != "events.jsonl") continue;
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      if (line.find(R"("ev":")" + event + '"') == std::string::npos) continue;
      std::smatch found;
      const bool has = std::regex_search(line, found, std::regex("\"" + key + "\":\"?([^,\"}]*)"));
      values.push_back(has ? found[1].str() : "");
    }
  }
  return values;
}

inline std::vector<std::string> OfSteps(const std::string& run_dir, const std::string& key) {
  return OfEvents(run_dir, "step", key);
}

}  // namespace gaccd::tests
