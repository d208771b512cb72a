#include "daemon/selftest/statistics_gradient.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/device/host_buffer.h"
#include "daemon/model/replica.h"
#include "daemon/selftest/micro_batch_sizes.h"

namespace gaccd {
namespace {

// The first sums are the statistics themselves; those of their gradients follow.
std::int64_t ForwardSums(const Model& model) {
  const auto one = model.RecordTraining({1});
  return one.ok() ? std::ssize(one->running) : 0;  // Make() has recorded it, too
}

// The sums between segments, as the mistake has them.
Status Sum(Communicator& comm, Replica& replica, std::int64_t forward, std::int64_t segment,
           StatisticsMistake mistake) {
  const std::span<double> sum = replica.update_sum(segment);
  const bool of_gradient = segment >= forward;
  if (mistake == StatisticsMistake::kConstant && of_gradient) std::ranges::fill(sum, 0.0);
  const bool own = mistake == StatisticsMistake::kOwnRank ||
                   mistake == StatisticsMistake::kOwnMicroBatch ||
                   (mistake == StatisticsMistake::kOwnGradient && of_gradient);
  return own ? Status::Ok() : comm.AllReduceSum(View(sum), View(sum));
}

}  // namespace

std::string_view Name(StatisticsMistake mistake) {
  switch (mistake) {
    case StatisticsMistake::kOwnRank:
      return "statistics of a rank";
    case StatisticsMistake::kOwnMicroBatch:
      return "of a micro-batch";
    case StatisticsMistake::kConstant:
      return "as constants";
    case StatisticsMistake::kOwnGradient:
      return "gradient of a rank";
  }
  return "";
}

bool HasEffect(StatisticsMistake mistake, const Plan& plan, const Model& model) {
  const bool has_gradient = model.update_sums() > ForwardSums(model);
  switch (mistake) {
    case StatisticsMistake::kOwnRank:
      return plan.world() > 1;
    case StatisticsMistake::kOwnGradient:
      return plan.world() > 1 && has_gradient;
    case StatisticsMistake::kOwnMicroBatch:
      return plan.world() > 1 || plan.accum_steps() > 1;
    case StatisticsMistake::kConstant:
      return has_gradient;
  }
  return false;
}

Result<std::vector<float>> StatisticsGradient(Communicator& comm, const Model& model,
                                              std::span<const float> parameters, const Plan& plan,
                                              Prefetcher& batches, StatisticsMistake mistake) {
  GACCD_ASSIGN_OR_RETURN(const HostBuffer memory,
                         HostBuffer::Allocate(parameters.size_bytes(), "gradients"));
  const std::span gradients(reinterpret_cast<float*>(memory.data()), parameters.size());
  GACCD_ASSIGN_OR_RETURN(auto replica,
                         Replica::Create(model, gradients, MicroBatchSizes(plan, comm.rank())));
  std::ranges::copy(parameters, replica->parameters().begin());
  GACCD_RETURN_IF_ERROR(replica->ParametersChanged());
  const auto weight =
      static_cast<float>(1.0 / static_cast<double>(plan.effective_batch() * model.predictions()));
  const std::int64_t steps = plan.accum_steps();
  const std::int64_t forward = ForwardSums(model);
  const auto run = [&](std::int64_t first, std::int64_t last) -> Status {
    replica->BeginSegments();
    for (std::int64_t segment = 0; segment <= model.update_sums(); ++segment) {
      for (std::int64_t step = first; step < last; ++step) {
        const BatchView batch = segment == 0 ? *batches.Next() : BatchView{};
        GACCD_RETURN_IF_ERROR(replica->RunSegment(batch, step, segment, weight).status());
      }
      if (segment == model.update_sums()) break;
      GACCD_RETURN_IF_ERROR(Sum(comm, *replica, forward, segment, mistake));
    }
    return Status::Ok();
  };
  if (mistake != StatisticsMistake::kOwnMicroBatch) {
    GACCD_RETURN_IF_ERROR(run(0, steps));
  } else {
    for (std::int64_t step = 0; step < steps; ++step) GACCD_RETURN_IF_ERROR(run(step, step + 1));
  }
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(gradients), View(gradients)));
  return std::vector<float>(gradients.begin(), gradients.end());
}

}  // namespace gaccd
