#include "daemon/submit/signal_lead.h"

#include <strings.h>

#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event_stream.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMin = 120;
constexpr std::int64_t kMax = 65'535;  // SLURM's limit
constexpr std::int64_t kResolution = 60;
constexpr double kMaxMeasured = 10'000;  // larger times are from damaged events

std::string Measured(const MeasuredTimes& times) {
  return Format("an update of %.3g s (p99) and a save of %.3g s", times.update_p99_s, times.save_s);
}

// A number with 1 to `max_digits` digits; sets *good to false if `text` is not one.
std::int64_t Digits(std::string_view text, std::size_t max_digits, bool* good) {
  const auto number = text.size() <= max_digits ? ToCount(text) : std::nullopt;
  *good = *good && number;
  return number.value_or(0);
}

}  // namespace

std::optional<MeasuredTimes> MeasureRun(const std::string& run_dir) {
  auto stream = EventStream::Open(run_dir);
  if (!stream.ok()) return std::nullopt;
  MeasuredTimes times;
  bool measured = false;
  const auto keep_max = [](std::optional<double> value, double& max) {
    if (value && *value > max && *value < kMaxMeasured) max = *value;
  };
  Event event;
  while (stream->Next(&event)) {
    if (event.name == "save" && event.Is("ok")) keep_max(event.Number("dur_s"), times.save_s);
    if (event.name != "step") continue;
    measured = true;
    keep_max(event.Number("dur_p99_s"), times.update_p99_s);
  }
  return measured ? std::optional(times) : std::nullopt;
}

SignalLead ComputeLead(const std::optional<MeasuredTimes>& times,
                       std::optional<std::int64_t> time_limit_s) {
  std::int64_t wanted = kDefaultLead;
  std::string reason = "as nothing was measured yet";
  if (times) {
    const double sum = 2 * (times->update_p99_s + times->save_s) + 60;
    const auto unclamped = static_cast<std::int64_t>(std::ceil(sum));
    wanted = std::clamp(unclamped, kMin, kMax);
    reason = wanted == unclamped
                 ? StrCat("twice ", Measured(*times), ", as measured before, and 60 s")
                 : StrCat(wanted > unclamped ? "at least " : "at most ", wanted,
                          " s; measured: ", Measured(*times));
  }
  const std::int64_t max_lead = time_limit_s.value_or(4 * kMax) / 4;
  const std::int64_t lead = std::min(wanted, max_lead);
  const bool is_short = times && lead < wanted;
  if (lead < kResolution) {
    return {0, "The time limit is too short for a signal: the ranks stop by the job's end time.",
            is_short};
  }
  if (lead < wanted) reason = StrCat("a quarter of the time limit, not ", wanted, " s: ", reason);
  return {lead, StrCat("The ranks save and stop ", lead, " s before the end: ", reason, "."),
          is_short};
}

Result<std::optional<std::int64_t>> ParseTimeLimit(std::string_view text) {
  const auto is = [&](const char* word) {
    return ::strcasecmp(std::string(text).c_str(), word) == 0;
  };
  if (text == "0" || is("unlimited") || is("infinite")) return std::optional<std::int64_t>();
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string_view::npos;
  const std::string_view clock = text.substr(has_days ? dash + 1 : 0);
  const auto colons = std::ranges::count(clock, ':');
  const bool has_hours = has_days || colons == 2;
  constexpr std::size_t kDigitsOfDays = 5;
  constexpr std::size_t kDigitsOfMinutes = 7;
  bool good = colons <= 2;
  std::int64_t seconds = 0;
  if (has_days) seconds = Digits(text.substr(0, dash), kDigitsOfDays, &good) * 24 * 3600;
  std::size_t max_digits = has_days ? 2 : has_hours ? kDigitsOfDays : kDigitsOfMinutes;
  std::int64_t unit = has_hours ? 3600 : 60;
  for (std::size_t begin = 0; good && begin <= clock.size();) {
    const std::size_t end = std::min(clock.find(':', begin), clock.size());
    seconds += Digits(clock.substr(begin, end - begin), max_digits, &good) * unit;
    begin = end + 1;
    max_digits = 2;
    unit /= 60;
  }
  // As for sbatch: no time is no limit, however it is written.
  if (good) return seconds > 0 ? std::optional(seconds) : std::nullopt;
  return Status(
      ErrorKind::kUsage,
      StrCat("--time: expected minutes, [days-]hours:minutes:seconds or days-hours, found '", text,
             "'"));
}

}  // namespace gaccd
