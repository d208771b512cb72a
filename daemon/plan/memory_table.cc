#include "daemon/plan/memory_table.h"

#include <iomanip>
#include <sstream>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::string MemoryRow(const Plan& plan, double time) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << "  " << std::setw(11) << plan.request().micro_batch
      << ' ' << std::setw(12) << plan.accum_steps() << ' ' << std::setw(10)
      << Name(plan.request().recompute) << ' ' << std::setw(16) << Megabytes(plan.memory()->bytes)
      << ' ' << std::setw(7) << time;
  return std::move(out).str();
}

}  // namespace

std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                            std::string_view limit) {
  std::string text =
      StrCat("\nMicro-batches by the memory of a rank\n  limit          ", limit, "\n",
             "  micro-batch  micro-steps  recompute           memory    time\n");
  for (std::size_t i = 0; i < choice.plans.size(); ++i) {
    const Plan& plan = choice.plans[i];
    text += MemoryRow(plan, RelativeTime(plan, cost));
    if (!plan.memory()->fits()) text += "  does not fit";
    if (i == choice.chosen && choice.fits) text += "  this plan";
    text += "\n";
  }
  return text + "time: of an update, predicted, relative to one micro-step without recompute.\n";
}

}  // namespace gaccd
