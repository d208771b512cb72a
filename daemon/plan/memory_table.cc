#include "daemon/plan/memory_table.h"

#include <iomanip>
#include <sstream>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::string MemoryRow(std::int64_t micro_batch, std::int64_t micro_steps, const std::string& memory,
                      double time) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << "  " << std::setw(11) << micro_batch << ' '
      << std::setw(12) << micro_steps << ' ' << std::setw(16) << memory << ' ' << std::setw(7)
      << time;
  return std::move(out).str();
}

}  // namespace

double RelativeTime(const Plan& plan, const UpdateCost& cost) {
  constexpr double kBytesOfMicroStep = 16;  // a parameter
  constexpr double kOperationsPerByte = 10;
  const double samples = cost.flops_per_sample * static_cast<double>(plan.ranks_hi_samples());
  const double step = kBytesOfMicroStep * kOperationsPerByte * static_cast<double>(cost.parameters);
  if (!(samples + step > 0)) return 1;
  return (samples + static_cast<double>(plan.accum_steps()) * step) / (samples + step);
}

std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                            std::string_view limit) {
  std::string text = StrCat("\nMicro-batches by the memory of a rank\n  limit          ", limit,
                            "\n", "  micro-batch  micro-steps           memory    time\n");
  for (std::size_t i = 0; i < choice.plans.size(); ++i) {
    const Plan& plan = choice.plans[i];
    text += MemoryRow(plan.request().micro_batch, plan.accum_steps(),
                      Megabytes(plan.memory()->bytes), RelativeTime(plan, cost));
    if (!plan.memory()->fits()) text += "  does not fit";
    if (i == choice.chosen && choice.fits) text += "  this plan";
    text += "\n";
  }
  return text + "time: of an update, predicted, relative to one micro-step.\n";
}

}  // namespace gaccd
