#include "daemon/weights/weights.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/group_rules.h"

namespace gaccd {
namespace {

std::size_t Size(std::int64_t value) { return static_cast<std::size_t>(value); }

bool MatchesAny(std::span<const std::string> patterns, const std::string& name) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& one) { return MatchesPattern(one, name); });
}

std::string Shown(const FlatEntry& entry) { return StrCat(entry.name, " ", ToString(entry.shape)); }

std::string Joined(std::span<const std::string> parts, std::string_view between) {
  std::string text;
  for (const std::string& part : parts) text += StrCat(text.empty() ? "" : between, part);
  return text;
}

// "a, b, c and 4 more"
std::string Abbreviate(std::span<const std::string> names) {
  constexpr std::size_t kShown = 3;
  const std::string text = Joined(names.first(std::min(kShown, names.size())), ", ");
  return names.size() > kShown ? StrCat(text, " and ", names.size() - kShown, " more") : text;
}

// Assigns tensors to parameters and collects errors.
class WeightMatcher {
 public:
  WeightMatcher(const FlatLayout& layout, const WeightNames& names, const WeightRules& rules,
                const SafetensorsFile& file)
      : layout_(layout), names_(names), rules_(rules) {
    for (const NamedTensor& tensor : file.tensors) in_file_.insert(FindByName(tensor.name));
    for (const OtherTensor& tensor : file.others) in_file_.insert(FindByName(tensor.name));
  }

  void Place(const NamedTensor& tensor) {
    const FlatEntry* entry = FindParameter(tensor.name);
    if (entry == nullptr || IsNewWeight(*entry)) return MarkUnused(tensor.name, entry != nullptr);
    if (IsOnlyCopy(tensor.name) && assigned_.contains(entry->name)) return;  // of several
    if (!assigned_.insert(entry->name).second) {
      errors_.push_back(StrCat("two tensors for '", entry->name, "'"));
    } else if (entry->shape != tensor.shape) {
      other_shape_.push_back(entry->name);
      errors_.push_back(StrCat(tensor.name, ": expected shape ", ToString(entry->shape), ", found ",
                               ToString(tensor.shape)));
    } else {
      placed_.emplace(entry->name, &tensor);
    }
  }
  void Place(const OtherTensor& tensor) {
    const FlatEntry* entry = FindParameter(tensor.name);
    if (entry == nullptr || IsNewWeight(*entry)) return MarkUnused(tensor.name, entry != nullptr);
    assigned_.insert(entry->name);
    errors_.push_back(StrCat(tensor.name, ": expected dtype F32, BF16 or F16, found ", tensor.dtype,
                             " (save the state_dict of model.float())"));
  }

  // REQUIRES: all tensors were placed.
  Result<WeightsReport> Report(const std::string& from) {
    WeightsReport report{.from = from};
    std::vector<std::string> missing;
    for (const FlatEntry& entry : layout_.entries()) {
      if (IsConstant(entry.name)) continue;
      ++(entry.buffer ? report.buffers : report.parameters);
      if (IsNewWeight(entry)) {
        report.new_weights.push_back(Shown(entry));
        continue;
      }
      ++(entry.buffer ? report.loaded_buffers : report.loaded);
      if (!assigned_.contains(entry.name)) missing.push_back(Shown(entry));
    }
    std::vector<std::string> problems;
    if (!errors_.empty()) problems.push_back(Abbreviate(errors_) + HintForOtherShapes());
    if (!missing.empty()) {
      problems.push_back(StrCat(
          "no tensor for ", missing.size(), " of ", report.parameters + report.buffers,
          report.buffers > 0 ? " parameters and buffers: " : " parameters: ", Abbreviate(missing),
          " (--new-weights=NAMES: newly initialised)"));
    }
    if (!unmatched_.empty()) {
      problems.push_back(StrCat("no parameter for ", unmatched_.size(), " tensors: ",
                                Abbreviate(unmatched_), " (", HintForUnmatched(), ")"));
    }
    if (!problems.empty()) {
      return Status(ErrorKind::kData,
                    StrCat(from, ": weights of another model: ", Joined(problems, "; ")));
    }
    report.unused = unused_;
    return report;
  }

  [[nodiscard]] const std::map<std::string_view, const NamedTensor*>& placed() const {
    return placed_;
  }

 private:
  [[nodiscard]] const FlatEntry* FindByName(const std::string& tensor) const {
    const FlatEntry* entry = layout_.Find(tensor);
    return entry != nullptr ? entry : layout_.Find(names_.prefix + tensor);
  }
  // Whether it is a tied copy of a parameter whose own name is not in the file: of tied names,
  // safetensors.torch.save_model() keeps the alphabetically first one.
  [[nodiscard]] bool IsOnlyCopy(const std::string& tensor) const {
    const auto tied = names_.tied.find(tensor);
    return tied != names_.tied.end() && !in_file_.contains(layout_.Find(tied->second));
  }
  [[nodiscard]] const FlatEntry* FindParameter(const std::string& tensor) const {
    return IsOnlyCopy(tensor) ? layout_.Find(names_.tied.at(tensor)) : FindByName(tensor);
  }
  [[nodiscard]] bool IsNewWeight(const FlatEntry& entry) const {
    return MatchesAny(rules_.new_weights, entry.name);
  }
  // The usual reason is another head, of few parameters, which the advice can list.
  [[nodiscard]] std::string HintForOtherShapes() const {
    constexpr std::size_t kMaxNames = 4;
    if (other_shape_.empty()) return {};
    return StrCat(
        " (--new-weights=", other_shape_.size() > kMaxNames ? "NAMES" : Joined(other_shape_, ","),
        ": newly initialised, whatever the file holds)");
  }
  [[nodiscard]] std::string HintForUnmatched() const {
    const auto batch_norm = std::ranges::count_if(unmatched_, [](const std::string& name) {
      return name.ends_with("running_mean") || name.ends_with("running_var") ||
             name.ends_with("num_batches_tracked");
    });
    if (batch_norm == 0) return "--unused-weights=NAMES: not used";
    return StrCat(batch_norm,
                  " belong to batch norm, which the model of the job does not have: with "
                  "--unused-weights the model runs without it, and its predictions "
                  "differ from those of the trained model");
  }
  void MarkUnused(const std::string& tensor, bool allowed) {
    const bool buffer = std::ranges::any_of(
        names_.buffers, [&](const std::string& end) { return tensor.ends_with(end); });
    if (buffer || (names_.tied.contains(tensor) && !IsOnlyCopy(tensor))) return;
    (allowed || MatchesAny(rules_.unused, tensor) ? unused_ : unmatched_).push_back(tensor);
  }

  const FlatLayout& layout_;
  const WeightNames& names_;
  const WeightRules& rules_;
  std::set<const FlatEntry*> in_file_;                     // parameters that it has by their names
  std::map<std::string_view, const NamedTensor*> placed_;  // by parameter
  std::set<std::string_view> assigned_;                    // parameters that have a tensor
  std::vector<std::string> errors_;                        // errors
  std::vector<std::string> other_shape_;                   // parameters
  std::vector<std::string> unused_;
  std::vector<std::string> unmatched_;
};

Status CheckFinite(const std::string& from, const NamedTensor& tensor) {
  const std::size_t bad = FirstNotFinite(tensor.values);
  if (bad == tensor.values.size()) return Status::Ok();
  return {ErrorKind::kData,
          StrCat(from, ": ", tensor.name, ": value ", bad, " is not finite: ", tensor.values[bad])};
}

// A copy with other values belongs to another model.
Status CheckTied(const std::string& from, const WeightNames& names, const SafetensorsFile& file,
                 const WeightMatcher& matcher) {
  for (const NamedTensor& tensor : file.tensors) {
    const auto tied = names.tied.find(tensor.name);
    if (tied == names.tied.end()) continue;
    const auto original = matcher.placed().find(tied->second);
    if (original == matcher.placed().end()) continue;
    if (original->second->values == tensor.values) continue;
    return {ErrorKind::kData, StrCat(from, ": ", tensor.name, ": expected the values of ",
                                     tied->second, ", which the model uses in its place")};
  }
  return Status::Ok();
}

// Whether `pattern` matches a name in `all`.
bool MatchesName(const auto& all, const std::string& pattern) {
  return std::ranges::any_of(all,
                             [&](const auto& one) { return MatchesPattern(pattern, one.name); });
}

Status CheckRules(const std::string& from, const SafetensorsFile& file, const FlatLayout& layout,
                  const WeightRules& rules) {
  for (const std::string& pattern : rules.new_weights) {
    if (MatchesName(layout.entries(), pattern)) continue;
    const std::string first = layout.entries().empty() ? "" : layout.entries().front().name;
    return {ErrorKind::kConfig, StrCat("--new-weights: '", pattern,
                                       "' matches no parameter; the first is '", first, "'")};
  }
  for (const std::string& pattern : rules.unused) {
    if (!MatchesName(file.tensors, pattern) && !MatchesName(file.others, pattern)) {
      return {ErrorKind::kConfig,
              StrCat("--unused-weights: '", pattern, "' matches no tensor of ", from)};
    }
    const FlatEntry* const entry = layout.Find(pattern);
    if (entry == nullptr) continue;
    return {ErrorKind::kConfig, StrCat("--unused-weights: '", pattern,
                                       "' is a parameter of the model; --new-weights=", pattern,
                                       " initialises it newly, whatever the file has")};
  }
  return Status::Ok();
}

}  // namespace

std::string ToText(const WeightsReport& report) {
  std::string text = StrCat("weights ", report.from, ": ", report.loaded, " of ", report.parameters,
                            " parameters");
  if (report.buffers > 0) {
    text += StrCat(" and ", report.loaded_buffers, " of ", report.buffers, " buffers");
  }
  text += " are loaded";
  if (!report.new_weights.empty()) text += "; newly initialised: " + Abbreviate(report.new_weights);
  if (!report.unused.empty()) text += "; not used: " + Abbreviate(report.unused);
  return text;
}

WeightsRecord ToRecord(const WeightsReport& report) {
  return {.file = report.from,
          .parameters = static_cast<std::int64_t>(report.parameters),
          .loaded = static_cast<std::int64_t>(report.loaded),
          .new_weights = Joined(report.new_weights, ", "),
          .unused = Joined(report.unused, ", ")};
}

Result<WeightsReport> AssignParameters(const std::string& from, const SafetensorsFile& file,
                                       const FlatLayout& layout, std::span<float> parameters,
                                       const WeightNames& names, const WeightRules& rules) {
  GACCD_RETURN_IF_ERROR(CheckRules(from, file, layout, rules));
  WeightMatcher matcher(layout, names, rules, file);
  for (const NamedTensor& tensor : file.tensors) matcher.Place(tensor);
  for (const OtherTensor& tensor : file.others) matcher.Place(tensor);
  GACCD_ASSIGN_OR_RETURN(WeightsReport report, matcher.Report(from));
  report.metadata = file.metadata;
  GACCD_RETURN_IF_ERROR(CheckTied(from, names, file, matcher));
  for (const auto& [name, tensor] : matcher.placed()) {
    GACCD_RETURN_IF_ERROR(CheckFinite(from, *tensor));
    std::ranges::copy(tensor->values, parameters.begin() + layout.Find(name)->offset);
  }
  return report;
}

Status SaveParameters(const std::string& path, const FlatLayout& layout,
                      std::span<const float> parameters, unsigned mode,
                      const std::map<std::string, std::string>& metadata,
                      const std::map<std::string, std::string>& copies) {
  std::vector<TensorView> views;
  const auto add = [&](std::string_view name, const FlatEntry& entry) {
    views.push_back(
        {name, entry.shape, parameters.subspan(Size(entry.offset), Size(entry.elements))});
  };
  for (const FlatEntry& entry : layout.entries()) {
    if (!IsConstant(entry.name)) add(entry.name, entry);
  }
  for (const auto& [copy, name] : copies) {
    if (const FlatEntry* entry = layout.Find(name)) add(copy, *entry);
  }
  return WriteSafetensors(path, views, mode, metadata);
}

}  // namespace gaccd
