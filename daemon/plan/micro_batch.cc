#include "daemon/plan/micro_batch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

Result<Plan> WithMicroBatch(PlanRequest request, std::int64_t micro_batch) {
  request.micro_batch = micro_batch;
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(request));
  return WithSmallestMicroBatch(plan);
}

class Search {
 public:
  Search(const PlanRequest& request, const FindMemoryNeed& find) : request_(request), find_(find) {}

  // Computes the memory of the plan with this micro-batch, unless it is known.
  Result<Plan> Evaluate(std::int64_t micro_batch) {
    GACCD_ASSIGN_OR_RETURN(Plan plan, WithMicroBatch(request_, micro_batch));
    const auto same = [&plan](const Plan& other) {
      return other.request().micro_batch == plan.request().micro_batch;
    };
    if (const auto known = std::ranges::find_if(plans_, same); known != plans_.end()) return *known;
    GACCD_ASSIGN_OR_RETURN(const MemoryNeed need, find_(plan));
    plan.set_memory(need);
    plans_.push_back(plan);
    return plan;
  }

  // The smallest micro-batch above that of `plan` with fewer micro-steps. REQUIRES: it has several.
  [[nodiscard]] static std::int64_t NextLarger(const Plan& plan) {
    return CeilDiv(plan.ranks_hi_samples(), plan.accum_steps() - 1);
  }

  // Searches between a plan that fits and one that does not.
  Result<Plan> Narrow(Plan fits, Plan too_large) {
    for (bool interpolate = true;; interpolate = !interpolate) {
      const std::int64_t low = fits.request().micro_batch;
      const std::int64_t next = NextLarger(fits);
      const std::int64_t high = too_large.request().micro_batch;
      if (next >= high) return fits;
      const std::int64_t guess =
          interpolate ? Interpolated(fits, too_large) : low + (high - low) / 2;
      GACCD_ASSIGN_OR_RETURN(const Plan plan, Evaluate(std::clamp(guess, next, high - 1)));
      const std::int64_t found = plan.request().micro_batch;
      if (found <= low || found >= high) return fits;  // uneven speeds: no plan in between
      (plan.memory()->fits() ? fits : too_large) = plan;
    }
  }

  // Halves a micro-batch that is too large if a single sample is too large, too. Empty: none fits.
  Result<std::optional<Plan>> Halve(Plan too_large) {
    while (too_large.request().micro_batch > 3) {
      GACCD_ASSIGN_OR_RETURN(const Plan half, Evaluate(too_large.request().micro_batch / 2));
      if (half.memory()->fits()) {
        GACCD_ASSIGN_OR_RETURN(Plan chosen, Narrow(half, too_large));
        return std::optional(std::move(chosen));
      }
      too_large = half;
    }
    return std::optional<Plan>();
  }

  // The considered plan with the smallest need.
  [[nodiscard]] Plan Smallest() const {
    return *std::ranges::min_element(
        plans_, {}, [](const Plan& plan) { return plan.memory()->bytes - plan.memory()->limit; });
  }

  Result<MicroBatchChoice> Finish(const Plan& chosen, std::size_t smaller) {
    for (Plan plan = chosen; smaller > 0 && plan.request().micro_batch > 1; --smaller) {
      GACCD_ASSIGN_OR_RETURN(plan, Evaluate(plan.request().micro_batch - 1));
    }
    const auto micro_batch = [](const Plan& plan) { return plan.request().micro_batch; };
    std::ranges::sort(plans_, std::ranges::greater(), micro_batch);
    const auto at = std::ranges::find(plans_, chosen.request().micro_batch, micro_batch);
    const auto index = static_cast<std::size_t>(at - plans_.begin());
    const bool fits = chosen.memory()->fits();
    return MicroBatchChoice{.plans = std::move(plans_), .chosen = index, .fits = fits};
  }

 private:
  // Interpolates linearly to the limit.
  static std::int64_t Interpolated(const Plan& fits, const Plan& too_large) {
    const MemoryNeed& low = *fits.memory();
    const MemoryNeed& high = *too_large.memory();
    const auto room = static_cast<double>(low.limit - low.bytes);
    const auto slope =
        static_cast<double>(high.bytes - low.bytes) /
        static_cast<double>(too_large.request().micro_batch - fits.request().micro_batch);
    if (!(slope > 0)) return too_large.request().micro_batch - 1;
    const auto distance = too_large.request().micro_batch - fits.request().micro_batch;
    return fits.request().micro_batch +
           static_cast<std::int64_t>(std::min(room / slope, static_cast<double>(distance)));
  }

  const PlanRequest& request_;
  const FindMemoryNeed& find_;
  std::vector<Plan> plans_;
};

}  // namespace

Result<Plan> WithSmallestMicroBatch(const Plan& plan) {
  PlanRequest request = plan.request();
  request.micro_batch = CeilDiv(plan.ranks_hi_samples(), plan.accum_steps());
  return Plan::Make(request);
}

Result<Plan> InOneMicroStep(const PlanRequest& request) {
  if (request.rounding != Rounding::kExact) {
    return Status(ErrorKind::kConfig,
                  StrCat("--micro-batch=auto: expected --rounding=exact, whose batch does not "
                         "depend on the micro-batch, found ",
                         Name(request.rounding)));
  }
  PlanRequest whole = request;
  whole.micro_batch = 1;
  GACCD_ASSIGN_OR_RETURN(const Plan plan, Plan::Make(whole));
  return WithMicroBatch(request, plan.ranks_hi_samples());
}

namespace {

Result<MicroBatchChoice> ChooseForRequest(const PlanRequest& request,
                                          const MicroBatchSearch& search,
                                          const FindMemoryNeed& find) {
  GACCD_ASSIGN_OR_RETURN(const Plan whole, InOneMicroStep(request));
  const std::int64_t load = whole.request().micro_batch;
  Search plans(request, find);
  GACCD_ASSIGN_OR_RETURN(
      const Plan largest,
      plans.Evaluate(search.max_micro_batch > 0 ? std::min(load, search.max_micro_batch) : load));
  if (largest.memory()->fits()) return plans.Finish(largest, search.smaller);
  GACCD_ASSIGN_OR_RETURN(const Plan smallest, plans.Evaluate(1));
  if (!smallest.memory()->fits()) {
    GACCD_ASSIGN_OR_RETURN(const std::optional<Plan> half, plans.Halve(largest));
    return plans.Finish(half ? *half : plans.Smallest(), half ? search.smaller : 0);
  }
  GACCD_ASSIGN_OR_RETURN(const Plan chosen, plans.Narrow(smallest, largest));
  return plans.Finish(chosen, search.smaller);
}

// If both fit, the faster one is better; otherwise the one that fits, or the one that needs less.
bool IsBetter(const MicroBatchChoice& blocks, const MicroBatchChoice& none,
              const UpdateCost& cost) {
  if (blocks.fits != none.fits) return blocks.fits;
  if (!none.fits) return blocks.plan().memory()->bytes < none.plan().memory()->bytes;
  return RelativeTime(blocks.plan(), cost) < RelativeTime(none.plan(), cost);
}

}  // namespace

Result<MicroBatchChoice> ChooseMicroBatch(const PlanRequest& request,
                                          const MicroBatchSearch& search,
                                          const FindMemoryNeed& find) {
  GACCD_ASSIGN_OR_RETURN(MicroBatchChoice choice, ChooseForRequest(request, search, find));
  const bool best = choice.fits && choice.plan().accum_steps() == 1;
  if (!search.recompute || (best && search.smaller == 0)) return choice;
  PlanRequest with = request;
  with.recompute = Recompute::kBlocks;
  GACCD_ASSIGN_OR_RETURN(MicroBatchChoice blocks, ChooseForRequest(with, search, find));
  const std::size_t first = choice.plans.size();
  if (IsBetter(blocks, choice, search.cost)) {
    choice.chosen = first + blocks.chosen;
    choice.fits = blocks.fits;
  }
  choice.plans.insert(choice.plans.end(), blocks.plans.begin(), blocks.plans.end());
  return choice;
}

double RelativeTime(const Plan& plan, const UpdateCost& cost) {
  constexpr double kBytesOfMicroStep = 16;  // per parameter
  constexpr double kOperationsPerByte = 10;
  const auto samples = static_cast<double>(plan.ranks_hi_samples());
  const double once = cost.flops_per_sample * samples;
  const double again = plan.request().recompute == Recompute::kBlocks
                           ? cost.recomputed_flops_per_sample * samples
                           : 0;
  const double step = kBytesOfMicroStep * kOperationsPerByte * static_cast<double>(cost.parameters);
  if (!(once + step > 0)) return 1;
  return (once + again + static_cast<double>(plan.accum_steps()) * step) / (once + step);
}

}  // namespace gaccd
