#include "daemon/engine/divided_steps.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Why micro-steps of this model cannot be divided; empty: they can.
std::string_view WhyIndivisible(const Model& model, bool any_split) {
  if (any_split) return "other micro-batches would change the bits (--bits=any-split)";
  if (model.contrastive()) return "the contrastive loss keeps the micro-batches of an update";
  if (model.update_sums() > 0) return "batch norms have statistics of the whole update (WINDOW)";
  if (model.micro_values() > 0) return "batch norms have statistics of the micro-batch (MICRO)";
  if (model.has_collectives()) return "other ranks take part in a micro-step of this model";
  return {};
}

}  // namespace

DividedSteps::DividedSteps(const Model& model, const ReplicaOptions& planned,
                           std::function<bool(std::int64_t samples)> refuses, Backend& backend)
    : model_(model),
      planned_(planned.micro_batches),
      any_split_(planned.any_split),
      refuses_(std::move(refuses)),
      backend_(backend),
      most_(planned_.empty() ? std::numeric_limits<std::int64_t>::max() : *planned_.rbegin()) {}

Status DividedSteps::RetryAllocation() {
  if (backend_.allocation_error().ok()) return Status::Ok();
  if (planned_.empty()) return backend_.allocation_error();
  return Halve(most_, /*rest=*/0, backend_.allocation_error());
}

void DividedSteps::Begin(std::int64_t update) {
  step_ = update + 1;
  micro_step_ = 0;
}

Status DividedSteps::MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first,
                               const float* row_gradients) {
  std::array<void*, kMaxTensors> tensors{};
  std::int64_t done = 0;
  do {
    const std::int64_t rest = batch.samples - done;
    const std::int64_t count = std::min(rest, most_);
    const BatchView part = count == batch.samples
                               ? batch
                               : Rows(model_.sample(), batch, static_cast<std::size_t>(done),
                                      static_cast<std::size_t>(count), tensors);
    const MicroStepPosition at{.first = place.first && done == 0,
                               .last = place.last && count == rest};
    const bool refused = refuses_ && refuses_(count);
    Status ran = refused
                     ? Status(ErrorKind::kOs, StrCat("memory for ", count, " samples was refused"))
                     : backend_.MicroStep(part, at, first, row_gradients);
    if (ran.ok()) {
      done += count;
    } else if (!refused && backend_.allocation_error().ok()) {
      return ran;
    } else {
      GACCD_RETURN_IF_ERROR(Halve(count, rest, std::move(ran)));
    }
  } while (done < batch.samples);
  ++micro_step_;
  return Status::Ok();
}

Status DividedSteps::Halve(std::int64_t count, std::int64_t rest, Status failure) {
  do {
    GACCD_RETURN_IF_ERROR(CheckRetry(count, failure));
    most_ = (count + 1) / 2;
    AllocationRetryRecord retry{.step = step_,
                                .micro_step = step_ == 0 ? 0 : micro_step_ + 1,
                                .samples_before = count,
                                .samples = most_,
                                .bytes_before = PlannedBytes(),
                                .bytes = 0,
                                .reason = failure.message()};
    on_prepare_(true);
    GACCD_RETURN_IF_ERROR(backend_.PrepareSizes(Sizes(rest)));
    on_prepare_(false);
    retry.bytes = PlannedBytes();
    retries_.push_back(std::move(retry));
    count = most_;
    failure = backend_.allocation_error();
  } while (!failure.ok());
  return Status::Ok();
}

Status DividedSteps::CheckRetry(std::int64_t count, const Status& failure) const {
  std::string why(WhyIndivisible(model_, any_split_));
  if (why.empty() && retries_.size() >= kMaxRetries) {
    why = StrCat("smaller micro-batches were tried ", retries_.size(), " times");
  }
  if (why.empty() && count <= 1) why = "a micro-batch of one sample is not divided";
  if (why.empty()) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("no memory for a micro-step of ", count, " samples: ", failure.message(),
                 "; not retried with half of them, as ", why,
                 "; set a smaller --micro-batch, or auto, or --recompute=blocks, or divide the "
                 "optimiser's state among ranks (--shard=optimizer)")};
}

std::set<std::int64_t> DividedSteps::Sizes(std::int64_t rest) const {
  std::set<std::int64_t> whole = planned_;
  whole.insert(rest);
  std::set<std::int64_t> sizes;
  for (const std::int64_t size : whole) {
    if (size > most_) sizes.insert(most_);
    sizes.insert(size > most_ ? size % most_ : size);
  }
  sizes.erase(0);
  return sizes;
}

std::int64_t DividedSteps::PlannedBytes() const {
  const EngineMemory memory = backend_.memory();
  return memory.device_bytes > 0 ? memory.device_bytes : memory.host_bytes;
}

}  // namespace gaccd
