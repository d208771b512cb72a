#include <algorithm>
#include <map>
#include <set>
#include <variant>

#include "collectives/base/files.h"
#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/inspect/report/report_data.h"

namespace gaccd {
namespace {

using Texts = std::map<std::string, std::string>;

Texts ReadEnvironment(const Attempt& attempt) {
  const auto text = ReadSmallFile(attempt.folder + "/env.json", ErrorKind::kData);
  if (!text.ok()) return {};
  const auto json = Json::ParseObject(*text);
  Texts texts;
  if (!json) return texts;
  for (const auto& [name, value] : *json->object()) {
    if (value.text() != nullptr) texts[name] = *value.text();
  }
  return texts;
}

std::vector<Change> Compare(const Texts& before, const Texts& after) {
  Texts names = before;
  names.insert(after.begin(), after.end());
  const auto value = [](const Texts& texts, const std::string& name) {
    const auto found = texts.find(name);
    return found == texts.end() ? std::string() : found->second;
  };
  std::vector<Change> changes;
  for (const auto& [name, any] : names) {
    const Change change{name, value(before, name), value(after, name)};
    if (change.before != change.after) changes.push_back(change);
  }
  return changes;
}

std::string ValueText(const EventValue& value) {
  return std::visit(Overloaded{[](std::nullptr_t) { return std::string(); },
                               [](bool flag) { return std::string(flag ? "true" : "false"); },
                               [](std::string_view text) { return std::string(text); },
                               [](auto number) { return NumberText(number); }},
                    value);
}

Texts FieldTexts(const Event& event) {
  constexpr std::string_view kChangedByEveryStart[] = {
      "v", "ts", "run", "job", "attempt", "rank", "ev", "lvl", "seq", "memory_planned_bytes"};
  Texts texts;
  for (const auto& [key, value] : event.Fields()) {
    if (std::ranges::find(kChangedByEveryStart, key) == std::end(kChangedByEveryStart))
      texts[std::string(key)] = ValueText(value);
  }
  return texts;
}

std::vector<std::string> SplitLines(const std::string& text) {
  std::vector<std::string> lines = Split(text, '\n');
  std::erase(lines, "");
  return lines;
}

// Multiset difference, in the order of `lines`.
std::vector<std::string> Without(const std::vector<std::string>& lines,
                                 const std::vector<std::string>& others) {
  std::multiset<std::string> left(others.begin(), others.end());
  std::vector<std::string> rest;
  for (const std::string& line : lines) {
    const auto found = left.find(line);
    if (found == left.end()) {
      rest.push_back(line);
    } else {
      left.erase(found);
    }
  }
  return rest;
}

}  // namespace

std::vector<Change> EnvironmentChanges(const Attempt& before, const Attempt& after) {
  constexpr std::string_view kChangedByEveryStart[] = {
      "SLURM_RESTART_COUNT",  "SLURM_JOB_START_TIME",     "SLURM_JOB_END_TIME",
      "SLURM_TASK_PID",       "SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST",
      "SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_PMIXP_ABORT_AGENT_PORT",
      "GACCD_ATTEMPT_DIR"};
  const Texts old = ReadEnvironment(before);
  const Texts now = ReadEnvironment(after);
  if (old.empty() || now.empty()) return {};
  std::vector<Change> changes = Compare(old, now);
  std::erase_if(changes, [&](const Change& change) {
    return std::ranges::find(kChangedByEveryStart, change.name) != std::end(kChangedByEveryStart);
  });
  return changes;
}

std::vector<Change> StartChanges(const Event& before, const Event& after) {
  return Compare(FieldTexts(before), FieldTexts(after));
}

std::vector<Change> LineChanges(const std::string& before, const std::string& after) {
  const std::vector<std::string> old = SplitLines(before);
  const std::vector<std::string> now = SplitLines(after);
  std::vector<Change> changes;
  for (std::string& line : Without(old, now)) changes.push_back({.before = std::move(line)});
  for (std::string& line : Without(now, old)) changes.push_back({.after = std::move(line)});
  return changes;
}

std::vector<Change> JobTextChanges(const Attempt& before, const Attempt& after) {
  const auto old = ReadSmallFile(before.folder + "/job.txtpb", ErrorKind::kData);
  const auto now = ReadSmallFile(after.folder + "/job.txtpb", ErrorKind::kData);
  return old.ok() && now.ok() ? LineChanges(*old, *now) : std::vector<Change>();
}

}  // namespace gaccd
