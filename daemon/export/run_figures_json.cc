// FigureSum as JSON, and back.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/export/run_figures.h"

namespace gaccd {
namespace {

using Json = nlohmann::json;

class Writer {
 public:
  explicit Writer(Json* json) : json_(*json) {}

  template <typename T>
  void operator()(const char* key, const T& value) {
    json_[key] = value;
  }
  void operator()(const char* key, const WallTime& value) {
    json_[key] = value.time_since_epoch().count();
  }
  void operator()(const char* key, const std::optional<WallTime>& value) {
    if (value) (*this)(key, *value);
  }
  void operator()(const char* key, const std::optional<Event>& value) {
    if (value) json_[key] = {value->attempt, value->line};
  }

 private:
  Json& json_;
};

// Throws Json::exception where a value is missing or of another type.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {}

  template <typename T>
  void operator()(const char* key, T& value) {
    json_.at(key).get_to(value);
  }
  void operator()(const char* key, WallTime& value) {
    value = WallTime(WallTime::duration(json_.at(key).get<WallTime::rep>()));
  }
  void operator()(const char* key, std::optional<WallTime>& value) {
    if (json_.contains(key)) (*this)(key, value.emplace());
  }
  void operator()(const char* key, std::optional<Event>& value) {
    if (!json_.contains(key)) return;
    const Json& pair = json_.at(key);
    Event& event = value.emplace();
    good_ &= ParseEvent(pair.at(1).get<std::string>(), &event);
    event.attempt = pair.at(0).get<std::string>();
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  const Json& json_;
  bool good_ = true;
};

template <typename Io, typename H>
void DescribeHistogram(Io& io, const std::string& name, H& histogram) {
  io((name + "_below").c_str(), histogram.below);
  io((name + "_count").c_str(), histogram.count);
  io((name + "_sum").c_str(), histogram.sum);
}

}  // namespace

// One description for both directions; done_s_ is not in it.
template <typename Io, typename Sum>
void FigureSum::Describe(Io& io, Sum& sum) {
  auto& figures = sum.figures_;
  io("start", figures.start);
  io("plan", figures.plan);
  io("step", figures.step);
  io("save", figures.save);
  io("begin", figures.begin);
  io("attempts", figures.attempts);
  io("updates", figures.updates);
  io("lost_updates", figures.lost_updates);
  io("samples", figures.samples);
  io("tokens", figures.tokens);
  io("flops", figures.flops);
  io("skipped", figures.skipped);
  io("nonfinite_losses", figures.nonfinite_losses);
  io("nonfinite_gradients", figures.nonfinite_gradients);
  io("failed_saves", figures.failed_saves);
  DescribeHistogram(io, "update_s", figures.update_s);
  DescribeHistogram(io, "save_s", figures.save_s);
  io("phase_s", figures.phase_s);
  io("evals", figures.evals);
  io("stragglers", figures.stragglers);
  io("errors", figures.errors);
  io("log_lines", figures.log_lines);
  io("good_s", figures.good_s);
  io("badput_s", figures.badput_s);
  io("attempt", sum.attempt_);
  io("has_step", sum.has_step_);
  io("attempt_begin", sum.attempt_begin_);
  io("loaded_s", sum.loaded_s_);
  io("last", sum.last_);
}

Json FigureSum::ToJson() const {
  Json json = Json::object();
  Writer writer(&json);
  Describe(writer, *this);
  const std::size_t known = done_s_.size() - std::min(done_s_.size(), unknown_);
  const std::size_t kept = std::min(known, kKeptUpdates);
  writer("unknown", done_s_.size() - kept);
  writer("done_s",
         std::vector<double>(done_s_.end() - static_cast<std::ptrdiff_t>(kept), done_s_.end()));
  return json;
}

std::optional<FigureSum> FigureSum::FromJson(const Json& json) {
  FigureSum sum;
  try {
    Reader reader(json);
    Describe(reader, sum);
    std::vector<double> kept;
    reader("unknown", sum.unknown_);
    reader("done_s", kept);
    if (!reader.good() || sum.unknown_ > kMostSteps) return std::nullopt;
    sum.done_s_.resize(sum.unknown_);
    sum.done_s_.insert(sum.done_s_.end(), kept.begin(), kept.end());
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  return sum;
}

}  // namespace gaccd
