#include "daemon/submit/slurm_site.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/submit/signal_lead.h"

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

const std::string& NameOf(const Fields& partition) { return partition.at("PartitionName"); }

// Those that are named in a list, or the default one.
std::vector<Fields> Chosen(std::vector<Fields> known, std::string_view names) {
  std::erase_if(known, [&](const Fields& one) {
    const auto is_default = one.find("Default");
    return names.empty()
               ? is_default == one.end() || is_default->second != "YES"
               : StrCat(",", names, ",").find(StrCat(",", NameOf(one), ",")) == std::string::npos;
  });
  return known;
}

std::optional<std::string> WarningOf(const Fields& partition) {
  const auto mode = partition.find("PreemptMode");
  if (mode == partition.end() || mode->second.find("CANCEL") == std::string::npos) {
    return std::nullopt;
  }
  return StrCat("partition ", NameOf(partition),
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
  const std::vector<Fields> known = ParsePartitions(answers.partitions);
  const std::vector<Fields> chosen = Chosen(known, partitions);
  for (const Fields& one : chosen) {
    if (auto warning = WarningOf(one)) warnings.push_back(*std::move(warning));
  }
  std::istringstream names{std::string(partitions)};
  for (std::string name; std::getline(names, name, ',') && !known.empty();) {
    if (std::ranges::none_of(chosen, [&](const Fields& one) { return NameOf(one) == name; })) {
      warnings.push_back(StrCat("there is no partition ", name));
    }
  }
  if (!answers.mpi_types.empty() && !ListsMpi(answers.mpi_types, mpi)) {
    warnings.push_back(StrCat("srun knows no --mpi=", mpi,
                              " here (GACCD_MPI sets another): ", OnOneLine(answers.mpi_types)));
  }
  return warnings;
}

std::optional<std::int64_t> TimeLimitOf(const SiteAnswers& answers, std::string_view partitions) {
  std::optional<std::int64_t> shortest;
  for (const Fields& one : Chosen(ParsePartitions(answers.partitions), partitions)) {
    const auto given = one.find("DefaultTime");
    const bool has_default = given != one.end() && given->second != "NONE";
    const auto field = has_default ? given : one.find("MaxTime");
    if (field == one.end()) continue;
    const auto limit = ParseTimeLimit(field->second);
    if (!limit.ok() || !*limit) continue;
    shortest = std::min(shortest.value_or(**limit), **limit);
  }
  return shortest;
}

}  // namespace gaccd
