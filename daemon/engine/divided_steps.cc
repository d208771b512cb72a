#include "daemon/engine/divided_steps.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Why a micro-step of `count` samples is not divided; empty: it is.
std::string_view WhyNotHalf(const Model& model, bool any_split, std::int64_t count) {
  if (any_split) return "other micro-batches would change the bits (--bits=any-split)";
  if (model.contrastive()) return "the contrastive loss keeps the micro-batches of an update";
  if (model.update_sums() > 0) {
    return "smaller micro-batches keep the same activations until the update ends (statistics of "
           "batch norms: WINDOW or GHOST)";
  }
  if (model.micro_values() > 0) return "batch norms have statistics of the micro-batch (MICRO)";
  if (model.has_collectives()) return "other ranks take part in a micro-step of this model";
  if (count <= 1) return "a micro-batch of one sample is not divided";
  return {};
}

// The same for recomputing its blocks.
std::string_view WhyNotRecompute(const Model& model, Recompute recompute) {
  if (recompute == Recompute::kBlocks) return "its blocks are recomputed already";
  if (model.has_collectives()) return "other ranks would have to recompute them, too";
  if (!model.has_blocks()) return "the model has none";
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
      max_samples_(planned_.empty() ? std::numeric_limits<std::int64_t>::max()
                                    : *planned_.rbegin()),
      recompute_(planned.recompute) {}

Status DividedSteps::RetryAllocation() {
  Status error = backend_.allocation_error();
  if (error.ok() && model_.update_sums() > 0 && !planned_.empty()) {
    error = RefusedForTest(max_samples_);
  }
  if (error.ok() || planned_.empty()) return error;
  return Reduce(max_samples_, /*rest=*/0, std::move(error));
}

Status DividedSteps::RefusedForTest(std::int64_t count) const {
  if (!refuses_ || !refuses_(count)) return Status::Ok();
  return {ErrorKind::kOs, StrCat("memory for ", count, " samples was refused")};
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
    const std::int64_t count = std::min(rest, max_samples_);
    const BatchView part = count == batch.samples
                               ? batch
                               : Rows(model_.sample(), batch, static_cast<std::size_t>(done),
                                      static_cast<std::size_t>(count), tensors);
    const MicroStepPosition at{.first = place.first && done == 0,
                               .last = place.last && count == rest};
    Status ran = RefusedForTest(count);
    const bool refused = !ran.ok();
    if (!refused) ran = backend_.MicroStep(part, at, first, row_gradients);
    if (ran.ok()) {
      done += count;
    } else if (!refused && backend_.allocation_error().ok()) {
      return ran;
    } else {
      GACCD_RETURN_IF_ERROR(Reduce(count, rest, std::move(ran)));
    }
  } while (done < batch.samples);
  ++micro_step_;
  return Status::Ok();
}

Status DividedSteps::Reduce(std::int64_t count, std::int64_t rest, Status failure) {
  do {
    AllocationRetryRecord retry{.step = step_,
                                .micro_step = step_ == 0 ? 0 : micro_step_ + 1,
                                .samples_before = count,
                                .bytes_before = PlannedBytes(),
                                .reason = failure.message()};
    GACCD_RETURN_IF_ERROR(ReduceOnce(count, failure));
    count = std::min(count, max_samples_);
    retry.samples = count;
    retry.recompute = recompute_ == Recompute::kBlocks;
    on_prepare_(true);
    GACCD_RETURN_IF_ERROR(backend_.PrepareSizes(Sizes(rest), recompute_));
    on_prepare_(false);
    retry.bytes = PlannedBytes();
    retries_.push_back(std::move(retry));
    failure = backend_.allocation_error();
  } while (!failure.ok());
  return Status::Ok();
}

Status DividedSteps::ReduceOnce(std::int64_t count, const Status& failure) {
  const std::string_view not_half = WhyNotHalf(model_, any_split_, count);
  const std::string_view not_recompute = WhyNotRecompute(model_, recompute_);
  if (retries_.size() < kMaxRetries && not_half.empty()) {
    max_samples_ = (count + 1) / 2;
    return Status::Ok();
  }
  if (retries_.size() < kMaxRetries && not_recompute.empty()) {
    recompute_ = Recompute::kBlocks;
    return Status::Ok();
  }
  const std::string why =
      retries_.size() >= kMaxRetries
          ? StrCat("not retried again, as less memory was tried ", retries_.size(), " times")
          : StrCat("not retried with half of them, as ", not_half,
                   ", nor by recomputing blocks, as ", not_recompute);
  return {
      ErrorKind::kConfig,
      StrCat("no memory for a micro-step of ", count, " samples: ", failure.message(), "; ", why,
             "; set a smaller --micro-batch, or auto, or --recompute=blocks, or divide the "
             "optimiser's state among ranks (--shard=optimizer)")};
}

std::set<std::int64_t> DividedSteps::Sizes(std::int64_t rest) const {
  std::set<std::int64_t> whole = planned_;
  whole.insert(rest);
  std::set<std::int64_t> sizes;
  for (const std::int64_t size : whole) {
    if (size > max_samples_) sizes.insert(max_samples_);
    sizes.insert(size > max_samples_ ? size % max_samples_ : size);
  }
  sizes.erase(0);
  return sizes;
}

std::int64_t DividedSteps::PlannedBytes() const {
  const EngineMemory memory = backend_.memory();
  return memory.device_bytes > 0 ? memory.device_bytes : memory.host_bytes;
}

}  // namespace gaccd
