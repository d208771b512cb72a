#include "daemon/engine/cuda_reduction.h"

#include <algorithm>
#include <utility>

#include "daemon/engine/gradient_reducer.h"

namespace gaccd {

Result<std::unique_ptr<CudaReduction>> CudaReduction::Create(
    Communicator& comm, CudaContext& context, const FlatLayout& layout, float* gradients,
    UpdateControl* control, const CudaReductionOptions& options) {
  const MutableBuffer buffer{gradients, static_cast<std::size_t>(layout.size()), DType::kF32,
                             MemoryKind::kCuda};
  GACCD_ASSIGN_OR_RETURN(
      BucketReducer reducer,
      MakeGradientReducer(comm, layout, buffer,
                          options.overlap ? options.bucket_elements : kOneBucket));
  std::unique_ptr<CudaReduction> reduction(new CudaReduction(
      comm, context, {gradients, buffer.count}, std::move(reducer), control, options));
  // The last bucket is complete when the micro-step is.
  if (options.overlap) reduction->marks_.resize(reduction->plan().buckets().size() - 1);
  for (CudaEvent& mark : reduction->marks_) {
    GACCD_ASSIGN_OR_RETURN(mark, CudaEvent::Create());
  }
  reduction->StartRecording();
  return reduction;
}

CudaReduction::CudaReduction(Communicator& comm, CudaContext& context, std::span<float> gradients,
                             BucketReducer reducer, UpdateControl* control,
                             const CudaReductionOptions& options)
    : comm_(comm),
      context_(context),
      gradients_(gradients),
      reducer_(std::move(reducer)),
      shards_(options.shards),
      control_(control),
      control_word_count_(options.control_word_count) {}

void CudaReduction::StartRecording() {
  missing_.clear();
  for (const Bucket& bucket : plan().buckets()) missing_.push_back(bucket.gradients);
}

Status CudaReduction::Ready(std::size_t parameter) {
  const std::size_t bucket = plan().bucket_of()[parameter];
  return --missing_[bucket] == 0 ? Mark(bucket) : Status::Ok();
}

Status CudaReduction::EndOfRecording() {
  // Gradients that no kernel writes are complete too.
  for (std::size_t bucket = 0; bucket < missing_.size(); ++bucket) {
    if (missing_[bucket] > 0) GACCD_RETURN_IF_ERROR(Mark(bucket));
  }
  StartRecording();
  return Status::Ok();
}

Status CudaReduction::Mark(std::size_t bucket) {
  if (bucket >= marks_.size()) return Status::Ok();
  // External: a wait on another stream takes effect each time the graph runs.
  return CudaStatus(
      cudaEventRecordWithFlags(marks_[bucket].get(), context_.compute(), cudaEventRecordExternal),
      "mark of a bucket of gradients");
}

Status CudaReduction::MarkAll() {
  for (const CudaEvent& mark : marks_) {
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(mark.get(), context_.compute()),
                                     "mark of a bucket of gradients"));
  }
  return Status::Ok();
}

Status CudaReduction::ReduceBucket(std::size_t bucket) {
  if (shards_ != nullptr) return Scatter(bucket);
  for (std::size_t gradient = 0; gradient < plan().bucket_of().size(); ++gradient) {
    if (plan().bucket_of()[gradient] != bucket) continue;
    GACCD_RETURN_IF_ERROR(reducer_.MarkReady(gradient, {context_.reduce()}));
  }
  return Status::Ok();
}

// Includes the padding up to the next bucket or the end, where parts end.
Status CudaReduction::Scatter(std::size_t bucket) {
  const auto first = plan().buckets()[bucket].offset;
  std::size_t end = gradients_.size();
  for (const Bucket& other : plan().buckets()) {
    if (other.offset > first) end = std::min(end, other.offset);
  }
  return shards_->Reduce(gradients_, static_cast<std::int64_t>(first),
                         static_cast<std::int64_t>(end - first), {context_.reduce()});
}

Status CudaReduction::Enqueue(const CudaEvent& computed) {
  cudaStream_t stream = context_.reduce();
  const auto wait_for = [&](const CudaEvent& event) {
    return CudaStatus(cudaStreamWaitEvent(stream, event.get(), 0), "wait for gradients");
  };
  for (std::size_t bucket = 0; bucket < marks_.size(); ++bucket) {
    GACCD_RETURN_IF_ERROR(wait_for(marks_[bucket]));
    GACCD_RETURN_IF_ERROR(ReduceBucket(bucket));
  }
  GACCD_RETURN_IF_ERROR(wait_for(computed));
  const MutableBuffer sums{&control_->sums,
                           sizeof(UpdateSums) / sizeof(double) + control_word_count_, DType::kF64,
                           MemoryKind::kCuda};
  if (shards_ == nullptr) return reducer_.ReduceAll(sums, {stream});
  GACCD_RETURN_IF_ERROR(Scatter(plan().buckets().size() - 1));
  return comm_.AllReduceSum(sums, sums, {stream});
}

}  // namespace gaccd
