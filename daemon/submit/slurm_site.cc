#include "daemon/submit/slurm_site.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

using Fields = std::map<std::string, std::string>;

// "PartitionName=main Default=YES PreemptMode=REQUEUE ...", a line each.
std::vector<Fields> ParsePartitions(const std::string& text) {
  std::vector<Fields> partitions;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    Fields fields;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const std::size_t end = word.find('=');
      if (end != std::string::npos) fields.emplace(word.substr(0, end), word.substr(end + 1));
    }
    if (fields.contains("PartitionName")) partitions.push_back(std::move(fields));
  }
  return partitions;
}

std::optional<std::string> WarningOf(const Fields& partition) {
  const auto mode = partition.find("PreemptMode");
  if (mode == partition.end() || mode->second.find("CANCEL") == std::string::npos) {
    return std::nullopt;
  }
  return StrCat("partition ", partition.at("PartitionName"),
                " cancels a job that is preempted, and does not requeue it (PreemptMode=",
                mode->second, "): --chain=N lets a further job go on");
}

bool ListsMpi(const std::string& list, std::string_view mpi) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word);) {
    const std::size_t from = word.find_first_not_of(" \t");
    if (from == std::string::npos) continue;
    word.erase(0, from);
    if (word.starts_with("srun: ")) word.erase(0, 6);
    if (word == mpi) return true;
    // "specific pmix plugin versions available: pmix_v3,pmix_v4"
    const std::size_t versions = word.find(": ");
    if (versions == std::string::npos) continue;
    if (StrCat(",", word.substr(versions + 2), ",").find(StrCat(",", mpi, ",")) !=
        std::string::npos) {
      return true;
    }
  }
  return false;
}

std::string OnOneLine(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += StrCat(line.empty() ? "" : " ", word);
  return line;
}

}  // namespace

std::vector<std::string> SiteWarnings(const SiteAnswers& answers, std::string_view partitions,
                                      std::string_view mpi) {
  std::vector<std::string> warnings;
  const auto take = [&](const Fields& partition) {
    if (auto warning = WarningOf(partition)) warnings.push_back(*std::move(warning));
  };
  const std::vector<Fields> known = ParsePartitions(answers.partitions);
  std::istringstream names{std::string(partitions)};
  for (std::string name; std::getline(names, name, ',') && !known.empty();) {
    const auto found = std::ranges::find_if(
        known, [&](const Fields& one) { return one.at("PartitionName") == name; });
    if (found != known.end()) take(*found);
    if (found == known.end()) warnings.push_back(StrCat("there is no partition ", name));
  }
  for (const Fields& one : known) {
    const auto is_default = one.find("Default");
    if (partitions.empty() && is_default != one.end() && is_default->second == "YES") take(one);
  }
  if (!answers.mpi_types.empty() && !ListsMpi(answers.mpi_types, mpi)) {
    warnings.push_back(StrCat("srun knows no --mpi=", mpi,
                              " here (GACCD_MPI sets another): ", OnOneLine(answers.mpi_types)));
  }
  return warnings;
}

}  // namespace gaccd
