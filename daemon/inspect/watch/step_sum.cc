#include "daemon/inspect/watch/step_sum.h"

#include <algorithm>
#include <charconv>

#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {
namespace {

std::int64_t ParseCount(std::string_view text) {
  std::int64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return std::clamp<std::int64_t>(count, 0, kMaxSteps);
}

// "3,4,4,...": one number per bound.
void ReadHistogram(const Event& event, Histogram* histogram) {
  const std::vector<std::string> counts = Split(event.Text("dur_below"), ',');
  for (std::size_t i = 0; i < std::min(counts.size(), histogram->below.size()); ++i) {
    histogram->below[i] = ParseCount(counts[i]);
  }
}

}  // namespace

void Histogram::Add(double seconds) {
  for (std::size_t i = 0; i < kBounds.size(); ++i) below[i] += seconds <= kBounds[i] ? 1 : 0;
  ++count;
  sum += seconds;
}

Histogram& Histogram::operator+=(const Histogram& more) {
  for (std::size_t i = 0; i < kBounds.size(); ++i) below[i] += more.below[i];
  count += more.count;
  sum += more.sum;
  return *this;
}

StepSum StepSum::FromEvent(const Event& event) {
  StepSum sum;
  const bool one = event.name == "step";
  sum.last = event.Whole("step").value_or(0);
  sum.first = one ? sum.last : event.Whole("first_step").value_or(0);
  if (sum.first < 1 || sum.last < sum.first || sum.last > kMaxSteps) return {};
  sum.updates =
      one ? 1 : std::clamp<std::int64_t>(event.Whole("updates").value_or(0), 0, kMaxSteps);
  const double dur_s = event.NotNegative("dur_s");
  sum.samples = event.NotNegative("samples");
  sum.data_s = std::min(dur_s, event.NotNegative("data_s"));
  sum.fwd_bwd_s = event.NotNegative("fwd_bwd_s");
  sum.reduce_s = event.NotNegative("reduce_s");
  sum.opt_s = event.NotNegative("opt_s");
  sum.wait_s = event.NotNegative("wait_s");
  if (one) {
    const auto samples = event.Whole("samples");
    sum.on_target = samples && samples == event.Whole("target") ? 1 : 0;
    if (event.Text("unit") == "tokens") sum.tokens = event.NotNegative("divisor");
    sum.dur_s.Add(dur_s);
    if (const auto host = event.Text("straggler_host"); !host.empty()) {
      sum.stragglers.emplace(host, 1);
    }
    return sum;
  }
  sum.on_target = sum.updates;  // other updates are not thinned
  sum.tokens = event.NotNegative("tokens");
  sum.dur_s.count = sum.updates;
  sum.dur_s.sum = dur_s;
  ReadHistogram(event, &sum.dur_s);
  for (const std::string& host : Split(event.Text("stragglers"), ',')) {
    const std::size_t equals = std::min(host.rfind('='), host.size());
    if (equals + 1 >= host.size()) continue;
    sum.stragglers[host.substr(0, equals)] += ParseCount(std::string_view(host).substr(equals + 1));
  }
  return sum;
}

StepSum& StepSum::operator+=(const StepSum& more) {
  if (updates == 0) first = more.first;
  last = more.last;
  updates += more.updates;
  on_target += more.on_target;
  samples += more.samples;
  tokens += more.tokens;
  data_s += more.data_s;
  fwd_bwd_s += more.fwd_bwd_s;
  reduce_s += more.reduce_s;
  opt_s += more.opt_s;
  wait_s += more.wait_s;
  dur_s += more.dur_s;
  for (const auto& [host, count] : more.stragglers) stragglers[host] += count;
  return *this;
}

std::string StepSum::Line(const Event& newest) const {
  JsonObject out;
  out("v", kLineVersion);
  for (const char* key : {"ts", "run", "job"}) out(key, newest.Text(key));
  out("attempt", newest.Whole("attempt"));
  out("rank", newest.Whole("rank"));
  out("host", newest.Text("host"));
  out("ev", "thinned");
  out("lvl", "info");
  out("seq", newest.Whole("seq"));
  out("first_step", first);
  out("step", last);
  out("updates", updates);
  out("samples", samples);
  out("tokens", tokens);
  out("dur_s", dur_s.sum);
  out("data_s", data_s);
  out("fwd_bwd_s", fwd_bwd_s);
  out("reduce_s", reduce_s);
  out("opt_s", opt_s);
  out("wait_s", wait_s);
  out("dur_below", Join(dur_s.below, ","));
  std::string hosts;
  for (const auto& [host, count] : stragglers) {
    hosts += StrCat(hosts.empty() ? "" : ",", host, "=", count);
  }
  out("stragglers", hosts);
  return out.Finish();
}

}  // namespace gaccd
