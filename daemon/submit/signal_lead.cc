#include "daemon/submit/signal_lead.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <regex>

#include "collectives/base/strings.h"
#include "daemon/watch/event_stream.h"

namespace gaccd {
namespace {

constexpr std::int64_t kLeast = 120;
constexpr std::int64_t kMost = 65'535;  // SLURM's
constexpr std::int64_t kResolution = 60;
constexpr double kLongest = 10'000;  // of what is measured; times of damaged events are no times

std::string Seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g s", value);
  return text;
}

std::string Measured(const MeasuredTimes& times) {
  return StrCat("twice an update of ", Seconds(times.update_p99_s), " (p99) and a save of ",
                Seconds(times.save_s), ", as measured before, and 60 s");
}

}  // namespace

std::optional<MeasuredTimes> MeasureRun(const std::string& run_dir) {
  auto stream = EventStream::Open(run_dir);
  if (!stream.ok()) return std::nullopt;
  MeasuredTimes times;
  bool measured = false;
  const auto take = [](std::optional<double> value, double& most) {
    if (value && *value > most && *value < kLongest) most = *value;
  };
  Event event;
  while (stream->Next(&event)) {
    if (event.name == "save" && event.Is("ok")) take(event.Number("dur_s"), times.save_s);
    if (event.name != "step") continue;
    measured = true;
    take(event.Number("dur_p99_s"), times.update_p99_s);
  }
  return measured ? std::optional(times) : std::nullopt;
}

SignalLead LeadOf(const std::optional<MeasuredTimes>& times,
                  std::optional<std::int64_t> time_limit_s) {
  std::int64_t wanted = kDefaultLead;
  std::string reason = "as nothing was measured yet";
  if (times) {
    const double asked = 2 * (times->update_p99_s + times->save_s) + 60;
    wanted = std::clamp(static_cast<std::int64_t>(std::ceil(asked)), kLeast, kMost);
    reason = Measured(*times);
  }
  const std::int64_t most = time_limit_s.value_or(4 * kMost) / 4;
  const std::int64_t lead = std::min(wanted, most);
  const bool is_short = times && lead < wanted;
  if (lead < kResolution) {
    return {0, "The time limit is too short for a signal: the ranks stop by the job's end time.",
            is_short};
  }
  if (lead < wanted) reason = StrCat("a quarter of the time limit; ", wanted, " s ", reason);
  return {lead, StrCat("The ranks save and stop ", lead, " s before the end: ", reason, "."),
          is_short};
}

Result<std::optional<std::int64_t>> ParseTimeLimit(std::string_view text) {
  if (text == "0" || text == "UNLIMITED" || text == "INFINITE")
    return std::optional<std::int64_t>();
  const std::string whole(text);
  const auto number = [](const std::ssub_match& part) -> std::int64_t {
    return part.matched ? std::stoll(part.str()) : 0;
  };
  std::smatch part;
  static const std::regex kDays("(\\d{1,5})-(\\d{1,2})(?::(\\d{1,2}))?(?::(\\d{1,2}))?");
  if (std::regex_match(whole, part, kDays)) {
    return std::optional(((number(part[1]) * 24 + number(part[2])) * 60 + number(part[3])) * 60 +
                         number(part[4]));
  }
  static const std::regex kHours("(\\d{1,5}):(\\d{1,2}):(\\d{1,2})");
  if (std::regex_match(whole, part, kHours)) {
    return std::optional((number(part[1]) * 60 + number(part[2])) * 60 + number(part[3]));
  }
  static const std::regex kMinutes("(\\d{1,7})(?::(\\d{1,2}))?");
  if (std::regex_match(whole, part, kMinutes)) {
    return std::optional(number(part[1]) * 60 + number(part[2]));
  }
  return Status(
      ErrorKind::kUsage,
      StrCat("--time: expected minutes, [days-]hours:minutes:seconds or days-hours, found '", text,
             "'"));
}

}  // namespace gaccd
