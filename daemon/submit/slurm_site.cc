#include "daemon/submit/slurm_site.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/submit/signal_lead.h"

namespace gaccd {
namespace {

using Fields = std::map<std::string, std::string>;

// text: lines "PartitionName=main Default=YES PreemptMode=REQUEUE ...".
std::vector<Fields> ParsePartitions(const std::string& text) {
  std::vector<Fields> partitions;
  for (const std::string& line : Split(text, '\n')) {
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

const std::string& PartitionName(const Fields& partition) { return partition.at("PartitionName"); }

// The partitions in a comma-separated list; if it is empty, the default one.
std::vector<Fields> SelectPartitions(std::vector<Fields> known, std::string_view names) {
  std::erase_if(known, [&](const Fields& one) {
    const auto is_default = one.find("Default");
    return names.empty() ? is_default == one.end() || is_default->second != "YES"
                         : !HasPart(names, PartitionName(one));
  });
  return known;
}

std::optional<std::string> PreemptionWarning(const Fields& partition) {
  const auto mode = partition.find("PreemptMode");
  if (mode == partition.end() || mode->second.find("CANCEL") == std::string::npos) {
    return std::nullopt;
  }
  return StrCat("partition ", PartitionName(partition),
                " cancels a job that is preempted, and does not requeue it (PreemptMode=",
                mode->second, "): --chain=N lets a further job continue");
}

// A numeric limit of a partition; empty for UNLIMITED and other words.
std::optional<std::int64_t> NumericLimit(const Fields& partition, const char* key) {
  const auto field = partition.find(key);
  if (field == partition.end() || field->second.empty() || field->second.size() > 15 ||
      field->second.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  return std::stoll(field->second);
}

std::optional<std::int64_t> MaxTime(const Fields& partition) {
  const auto field = partition.find("MaxTime");
  if (field == partition.end()) return std::nullopt;
  const auto limit = ParseTimeLimit(field->second);
  return limit.ok() ? *limit : std::nullopt;
}

// Why the partition can never start the job; empty: it can.
std::string WhyNotStartable(const Fields& partition, const JobShape& job) {
  const auto state = partition.find("State");
  if (state != partition.end() && state->second != "UP") return StrCat("it is ", state->second);
  for (const char* key : {"TotalNodes", "MaxNodes"}) {
    const auto max_nodes = NumericLimit(partition, key);
    if (max_nodes && job.nodes && *job.nodes > *max_nodes) {
      return StrCat("the job asks for ", *job.nodes, " nodes, ", key, " is ", *max_nodes);
    }
  }
  const auto time = MaxTime(partition);
  if (time && job.time_limit_s && *job.time_limit_s > *time) {
    return StrCat("the job asks for ", *job.time_limit_s, " s, MaxTime is ", *time, " s");
  }
  const auto memory = NumericLimit(partition, "MaxMemPerNode");
  if (memory && job.memory_mib && *job.memory_mib > *memory) {
    return StrCat("the job asks for ", *job.memory_mib, " MiB a node, MaxMemPerNode is ", *memory);
  }
  return {};
}

// The value in "AuthInfo    = cred_expire=30,socket=...", without leading spaces.
std::string FindValue(const std::string& config, std::string_view key) {
  for (const std::string& line : Split(config, '\n')) {
    const std::size_t end = line.find('=');
    if (end == std::string::npos) continue;
    std::istringstream name(line.substr(0, end));
    std::string word;
    if (!(name >> word) || word != key) continue;
    const std::size_t from = line.find_first_not_of(" \t", end + 1);
    return from == std::string::npos ? std::string() : line.substr(from);
  }
  return {};
}

// For "c" in "a=1,b,c=2": 2.
std::optional<std::int64_t> FindNumber(const std::string& list, const std::string& name) {
  const std::string all = "," + list;
  const std::size_t at = all.find(StrCat(",", name, "="));
  if (at == std::string::npos) return std::nullopt;
  std::int64_t number = 0;
  const char* from = all.c_str() + at + name.size() + 2;
  const auto [end, error] = std::from_chars(from, all.c_str() + all.size(), number);
  return error == std::errc() && number >= 0 ? std::optional(number) : std::nullopt;
}

bool ListsMpi(const std::string& list, std::string_view mpi) {
  for (std::string word : Split(list, '\n')) {
    const std::size_t from = word.find_first_not_of(" \t");
    if (from == std::string::npos) continue;
    word.erase(0, from);
    if (word.starts_with("srun: ")) word.erase(0, 6);
    if (word == mpi) return true;
    // "specific pmix plugin versions available: pmix_v3,pmix_v4"
    const std::size_t versions = word.find(": ");
    if (versions != std::string::npos && HasPart(word.substr(versions + 2), mpi)) return true;
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

std::vector<std::string> SiteWarnings(const SiteOutputs& outputs, std::string_view partitions,
                                      std::string_view mpi) {
  std::vector<std::string> warnings;
  const std::vector<Fields> known = ParsePartitions(outputs.partitions);
  const std::vector<Fields> chosen = SelectPartitions(known, partitions);
  for (const Fields& one : chosen) {
    if (auto warning = PreemptionWarning(one)) warnings.push_back(*std::move(warning));
  }
  for (const std::string& name : Split(partitions, ',')) {
    if (!known.empty() && std::ranges::count(chosen, name, PartitionName) == 0) {
      warnings.push_back(StrCat("there is no partition ", name));
    }
  }
  if (!outputs.mpi_types.empty() && !ListsMpi(outputs.mpi_types, mpi)) {
    warnings.push_back(StrCat("srun does not support --mpi=", mpi,
                              " here (GACCD_MPI sets another): ", OnOneLine(outputs.mpi_types)));
  }
  return warnings;
}

std::vector<std::string> StartWarnings(const SiteOutputs& outputs, std::string_view partitions,
                                       const JobShape& job) {
  std::vector<std::string> warnings;
  for (const Fields& one : SelectPartitions(ParsePartitions(outputs.partitions), partitions)) {
    const std::string why = WhyNotStartable(one, job);
    if (why.empty()) return {};
    warnings.push_back(
        StrCat("the job can never start in partition ", PartitionName(one), ": ", why));
  }
  return warnings;
}

std::optional<RequeueRules> ReadRequeueRules(const SiteOutputs& outputs) {
  if (FindValue(outputs.config, "AuthInfo").empty()) return std::nullopt;
  RequeueRules rules{.delay_from = "AuthInfo=cred_expire is not set",
                     .node_timeout = FindValue(outputs.config, "SlurmdTimeout")};
  if (const auto expire = FindNumber(FindValue(outputs.config, "AuthInfo"), "cred_expire")) {
    rules.delay_s = *expire;
    rules.delay_from = "AuthInfo=cred_expire";
  }
  const std::string scheduler = FindValue(outputs.config, "SchedulerParameters");
  if (const auto delay = FindNumber(scheduler, "requeue_delay")) {
    rules.delay_s = *delay;
    rules.delay_from = "SchedulerParameters=requeue_delay";
  }
  rules.may_expedite =
      HasPart(FindValue(outputs.config, "SlurmctldParameters"), "enable_expedited_requeue");
  return rules;
}

std::string RequeueRules::Text() const {
  std::string text =
      may_expedite
          ? std::string("A requeued job may start at once here, before all others: expedite")
          : StrCat("A requeued job waits ", delay_s, " s here before it may start: ", delay_from);
  if (!node_timeout.empty()) {
    text += StrCat(". A node that is off is noticed after SlurmdTimeout=", node_timeout);
  }
  return text + ".";
}

std::optional<std::int64_t> DefaultTimeLimit(const SiteOutputs& outputs,
                                             std::string_view partitions) {
  std::optional<std::int64_t> shortest;
  for (const Fields& one : SelectPartitions(ParsePartitions(outputs.partitions), partitions)) {
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
