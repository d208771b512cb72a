// FigureSum to JSON and back.
#include <algorithm>
#include <concepts>
#include <limits>
#include <utility>

#include "daemon/inspect/export/run_figures.h"

namespace gaccd {
namespace {

class Writer {
 public:
  template <typename T>
  void operator()(std::string_view key, const T& value) {
    object_.emplace_back(key, ToJson(value));
  }
  template <typename T>
  void operator()(std::string_view key, const std::optional<T>& value) {
    if (value) (*this)(key, *value);
  }
  [[nodiscard]] Json Take() { return std::move(object_); }

 private:
  template <typename T>
  static Json ToJson(const T& value) {
    return Json(value);
  }
  static Json ToJson(const WallTime& value) {
    return std::int64_t{value.time_since_epoch().count()};
  }
  static Json ToJson(const Event& value) { return Json::Array{value.attempt, value.line}; }
  static Json ToJson(const FigureSum::Evaluation& value) {
    return Json::Array{value.step, value.value};
  }
  template <typename V>
  static Json ToJson(const std::map<std::string, V>& values) {
    Json::Object object;
    for (const auto& [key, value] : values) object.emplace_back(key, ToJson(value));
    return object;
  }
  template <typename V, std::size_t n>
  static Json ToJson(const std::array<V, n>& values) {
    return Json::Array(values.begin(), values.end());
  }
  template <typename V>
  static Json ToJson(const std::vector<V>& values) {
    Json::Array array;
    for (const V& value : values) array.push_back(ToJson(value));
    return array;
  }

  Json::Object object_;
};

// good() is false if a value is missing or has another type.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(std::string_view key, T& value) {
    const Json* const found = json_.Find(key);
    good_ = good_ && found != nullptr && Read(*found, &value);
  }
  template <typename T>
  void operator()(std::string_view key, std::optional<T>& value) {
    if (json_.Find(key) != nullptr) (*this)(key, value.emplace());
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  template <typename T>
  static bool Assign(const std::optional<T>& found, T* value) {
    if (found) *value = *found;
    return found.has_value();
  }
  template <std::integral T>
  static bool Read(const Json& json, T* value) {
    return Assign(json.integer<T>(), value);
  }
  static bool Read(const Json& json, bool* value) { return Assign(json.boolean(), value); }
  // Numbers that are not finite are null in JSON.
  static bool Read(const Json& json, double* value) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    return Assign(json.is_null() ? kNan : json.number(), value);
  }
  static bool Read(const Json& json, std::string* value) {
    if (json.text() != nullptr) *value = *json.text();
    return json.text() != nullptr;
  }
  static bool Read(const Json& json, WallTime* value) {
    WallTime::rep count = 0;
    const bool good = Read(json, &count);
    *value = WallTime(WallTime::duration(count));
    return good;
  }
  static bool Read(const Json& json, Event* value) {
    const std::vector<std::string> texts = TextsIn(json);
    if (texts.size() != 2 || !ParseEvent(texts[1], value)) return false;
    value->attempt = texts[0];
    return true;
  }
  static bool Read(const Json& json, FigureSum::Evaluation* value) {
    const Json::Array* const list = json.array();
    return list != nullptr && list->size() == 2 && Read(list->front(), &value->step) &&
           Read(list->back(), &value->value);
  }
  template <typename V>
  static bool Read(const Json& json, std::map<std::string, V>* values) {
    return json.object() != nullptr &&
           std::ranges::all_of(*json.object(), [&](const Json::Member& member) {
             return Read(member.second, &(*values)[member.first]);
           });
  }
  template <typename V, std::size_t n>
  static bool Read(const Json& json, std::array<V, n>* values) {
    const Json::Array* const list = json.array();
    return list != nullptr && std::ranges::equal(*list, *values, [](const Json& found, V& value) {
             return Read(found, &value);
           });
  }
  template <typename V>
  static bool Read(const Json& json, std::vector<V>* values) {
    return json.array() != nullptr && std::ranges::all_of(*json.array(), [&](const Json& value) {
             return Read(value, &values->emplace_back());
           });
  }

  const Json& json_;
  bool good_ = true;
};

template <typename Io, typename H>
void DescribeHistogram(Io& io, const std::string& name, H& histogram) {
  io(name + "_below", histogram.below);
  io(name + "_count", histogram.count);
  io(name + "_sum", histogram.sum);
}

}  // namespace

// For both directions; without done_s_ and unknown_.
template <typename Io, typename Sum>
void FigureSum::Describe(Io& io, Sum& sum) {
  auto& figures = sum.figures_;
  io("start", figures.start);
  io("plan", figures.plan);
  io("target", figures.target);
  io("rebalance", figures.rebalance);
  io("step", figures.step);
  io("save", figures.save);
  io("begin", figures.begin);
  io("updates", figures.updates);
  io("lost_updates", figures.lost_updates);
  io("samples", figures.samples);
  io("tokens", figures.tokens);
  io("flops", figures.flops);
  io("skipped", figures.skipped);
  io("unlabelled", figures.unlabelled);
  io("nonfinite_losses", figures.nonfinite_losses);
  io("nonfinite_gradients", figures.nonfinite_gradients);
  io("failed_saves", figures.failed_saves);
  DescribeHistogram(io, "update_s", figures.update_s);
  DescribeHistogram(io, "save_s", figures.save_s);
  io("phase_s", figures.phase_s);
  io("evaluations", sum.evaluations_);
  io("stragglers", figures.stragglers);
  io("errors", figures.errors);
  io("log_lines", figures.log_lines);
  io("good_s", figures.good_s);
  io("badput_s", figures.badput_s);
  io("attempt", sum.attempt_);
  io("has_step", sum.has_step_);
  io("attempt_begin", sum.attempt_begin_);
  io("earlier_s", sum.earlier_s_);
  io("loaded_s", sum.loaded_s_);
  io("until", sum.until_);
  io("last", sum.last_);
}

Json FigureSum::ToJson() const {
  Writer writer;
  Describe(writer, *this);
  const std::size_t known = done_s_.size() - std::min(done_s_.size(), unknown_);
  const std::size_t kept = std::min(known, kKeptUpdates);
  writer("unknown", done_s_.size() - kept);
  writer("done_s",
         std::vector<double>(done_s_.end() - static_cast<std::ptrdiff_t>(kept), done_s_.end()));
  return writer.Take();
}

std::optional<FigureSum> FigureSum::FromJson(const Json& json) {
  FigureSum sum;
  Reader reader(json);
  Describe(reader, sum);
  std::vector<double> kept;
  reader("unknown", sum.unknown_);
  reader("done_s", kept);
  if (!reader.good() || sum.unknown_ > kMaxSteps) return std::nullopt;
  sum.done_s_.resize(sum.unknown_);
  sum.done_s_.insert(sum.done_s_.end(), kept.begin(), kept.end());
  return sum;
}

}  // namespace gaccd
