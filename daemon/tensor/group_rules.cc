#include "daemon/tensor/group_rules.h"

#include <fnmatch.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status CheckRule(const OptimizerGroupSpec& rule, std::span<const FlatEntry> entries,
                 const std::map<std::string, std::string>& tied) {
  const std::string name = StrCat("optimizer.group '", rule.match, "'");
  if (!rule.weight_decay && !rule.lr_factor && !rule.freeze) {
    return {ErrorKind::kConfig, StrCat(name, " needs weight_decay, lr_factor or freeze")};
  }
  bool statistics = false;
  for (const FlatEntry& entry : entries) {
    if (!MatchesPattern(rule.match, entry.name)) continue;
    if (!entry.buffer) return Status::Ok();
    statistics = true;
  }
  if (statistics) {
    return {ErrorKind::kConfig,
            StrCat(name,
                   " matches only values that the optimizer does not change: running statistics "
                   "(stats: FROZEN in a batch norm keeps them), or what the output of an "
                   "exported model does not depend on")};
  }
  for (const auto& [copy, parameter] : tied) {
    if (!MatchesPattern(rule.match, copy)) continue;
    return {ErrorKind::kConfig, StrCat(name, " matches no parameter: '", copy,
                                       "' is another name of '", parameter, "'")};
  }
  return {ErrorKind::kConfig, StrCat(name, " matches no parameter; the first is '",
                                     entries.empty() ? "" : entries.front().name, "'")};
}

}  // namespace

bool MatchesPattern(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
}

Status ApplyGroupRules(const OptimizerSpec& spec, FlatLayout* layout,
                       const std::map<std::string, std::string>& tied) {
  for (const OptimizerGroupSpec& rule : spec.group) {
    GACCD_RETURN_IF_ERROR(CheckRule(rule, layout->entries(), tied));
  }
  for (std::size_t i = 0; i < layout->entries().size(); ++i) {
    const FlatEntry& entry = layout->entries()[i];
    if (entry.buffer) continue;
    OptimizerGroup group = entry.group;
    bool frozen = entry.frozen;
    for (const OptimizerGroupSpec& rule : spec.group) {
      if (!MatchesPattern(rule.match, entry.name)) continue;
      if (rule.weight_decay) group.weight_decay = rule.weight_decay;
      group.lr_factor = rule.lr_factor.value_or(group.lr_factor);
      frozen = rule.freeze.value_or(frozen);
    }
    layout->SetGroup(i, group, frozen);
  }
  if (layout->size() == 0 || layout->trainable_size() > 0) return Status::Ok();
  return {ErrorKind::kConfig, "optimizer.group: all parameters are frozen: nothing to train"};
}

double OwnWeightDecay(const OptimizerSpec& spec) {
  return std::visit([](const auto& kind) { return kind.weight_decay; }, spec.kind);
}

std::string DecayText(const FlatLayout& layout, const OptimizerSpec& spec) {
  const double own = OwnWeightDecay(spec);
  struct Alike {
    std::string decay;
    std::string first;
    int count = 0;
  };
  std::vector<Alike> all;
  std::size_t parameters = 0;
  for (const FlatEntry& entry : layout.entries()) {
    if (entry.buffer) continue;
    ++parameters;
    const std::string decay =
        entry.frozen ? "frozen" : StrCat(entry.group.weight_decay.value_or(own));
    auto found = std::ranges::find(all, decay, &Alike::decay);
    if (found == all.end()) found = all.insert(all.end(), {decay, entry.name});
    ++found->count;
  }
  if (all.size() == 1 && all.front().decay == "0") return "none";
  std::string text;
  for (const Alike& one : all) {
    text += StrCat(text.empty() ? "" : "; ", one.decay, one.decay == "frozen" ? ": " : " for ",
                   one.count, text.empty() ? StrCat(" of ", parameters) : "", " (", one.first,
                   one.count > 1 ? ", ...)" : ")");
  }
  return text;
}

}  // namespace gaccd
