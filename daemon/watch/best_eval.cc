#include "daemon/watch/best_eval.h"

#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/watch/attempts.h"
#include "daemon/watch/event.h"
#include "daemon/watch/line_reader.h"

namespace gaccd {
namespace {

constexpr std::string_view kLoss = "loss";

void Take(const Event& event, std::optional<BestValue>* best) {
  const std::string metric = Printable(event.Text("metric"));
  const auto value = event.Number("value");
  if (metric.empty() || !value) return;
  const bool other = *best && (*best)->metric != metric;
  if (other && (*best)->metric != kLoss) return;
  const bool better = !*best || other ||
                      (SmallerIsBetter(metric) ? *value < (*best)->value : *value > (*best)->value);
  if (better) *best = {metric, *value, event.Whole("step").value_or(0)};
}

}  // namespace

std::optional<BestValue> FindBestEval(const std::string& run_dir) {
  const auto list = ListAttempts(run_dir);
  if (!list.ok()) return std::nullopt;
  std::optional<BestValue> best;
  for (const Attempt& attempt : list->attempts) {
    LineReader lines(attempt.folder + "/events.jsonl");
    Event event;
    while (const auto line = lines.Next()) {
      const bool is_eval = line->find(R"("ev":"eval")") != std::string_view::npos;
      if (is_eval && ParseEvent(*line, &event)) Take(event, &best);
    }
  }
  return best;
}

}  // namespace gaccd
