// The environment of a job: lines NAME=VALUE, SLURM_ left out.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "slurm/environment.h"
#include "slurm/hostlist.h"
#include "tests/fuzz/fuzz_check.h"
#include "tests/fuzz/fuzz_targets.h"

namespace gaccd {
namespace {

constexpr std::size_t kHostLimit = 1'000;

void UseHostlist(const std::string& list) {
  const auto hosts = ExpandHostlist(list, kHostLimit);
  if (!hosts.ok()) {
    FuzzCheck(hosts.status().kind() == ErrorKind::kConfig, "the kind of a refusal is config");
    return;
  }
  FuzzCheck(!hosts->empty() && hosts->size() <= kHostLimit, "at least one host, at most the bound");
  std::string joined;
  for (const std::string& host : *hosts) {
    FuzzCheck(!host.empty() && host.size() <= 255, "a name has 1 to 255 characters");
    FuzzCheck(host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789._-") == std::string::npos,
              "a name has letters, digits and . _ - only");
    joined += (joined.empty() ? "" : ",") + host;
  }
  const auto again = ExpandHostlist(joined, kHostLimit);
  FuzzCheck(again.ok() && *again == *hosts, "the long form is a list, of the same hosts");
}

void UseTasks(const TasksPerNode& tasks) {
  FuzzCheck(tasks.nodes >= 1 && tasks.min >= 0 && tasks.min <= tasks.max, "tasks are in order");
  FuzzCheck(tasks.tasks >= tasks.max, "all tasks are at least those of one node");
}

}  // namespace
}  // namespace gaccd

int gaccd::FuzzSlurm(const std::uint8_t* data, std::size_t size) {
  using namespace gaccd;
  std::map<std::string, std::string> variables;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables["SLURM_" + std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  const auto env =
      SlurmEnvironment::Read([&](const std::string& name) -> std::optional<std::string> {
        const auto found = variables.find(name);
        if (found == variables.end()) return std::nullopt;
        return found->second;
      });
  for (const auto& [name, value] : variables) {
    UseHostlist(value);
    const auto tasks = ParseTasksPerNode(value);
    if (tasks.ok()) UseTasks(*tasks);
  }
  if (!env.ok()) {
    FuzzCheck(env.status().kind() == ErrorKind::kConfig, "the kind of a refusal is config");
    return 0;
  }
  FuzzCheck(!env->procid || !env->step_tasks || *env->procid < *env->step_tasks,
            "a rank is below their number");
  FuzzCheck(env->restart_count >= 0, "restarts are counted from 0");
  (void)CheckNodes(2, 8, *env);
  return 0;
}
