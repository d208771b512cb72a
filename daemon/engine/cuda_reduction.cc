#include "daemon/engine/cuda_reduction.h"

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
  std::unique_ptr<CudaReduction> reduction(
      new CudaReduction(context, std::move(reducer), control, options));
  // The last bucket is complete when all is.
  if (options.overlap) reduction->marks_.resize(reduction->plan().buckets().size() - 1);
  for (CudaEvent& mark : reduction->marks_) {
    GACCD_ASSIGN_OR_RETURN(mark, CudaEvent::Create());
  }
  reduction->StartRecording();
  return reduction;
}

CudaReduction::CudaReduction(CudaContext& context, BucketReducer reducer, UpdateControl* control,
                             const CudaReductionOptions& options)
    : context_(context),
      reducer_(std::move(reducer)),
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
  // External: a wait on another stream sees it each time the graph runs.
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

Status CudaReduction::Enqueue(const CudaEvent& computed) {
  cudaStream_t stream = context_.reduce();
  const auto wait_for = [&](const CudaEvent& event) {
    return CudaStatus(cudaStreamWaitEvent(stream, event.get(), 0), "wait for gradients");
  };
  for (std::size_t bucket = 0; bucket < marks_.size(); ++bucket) {
    GACCD_RETURN_IF_ERROR(wait_for(marks_[bucket]));
    for (std::size_t gradient = 0; gradient < plan().bucket_of().size(); ++gradient) {
      if (plan().bucket_of()[gradient] != bucket) continue;
      GACCD_RETURN_IF_ERROR(reducer_.MarkReady(gradient, {stream}));
    }
  }
  GACCD_RETURN_IF_ERROR(wait_for(computed));
  const MutableBuffer sums{&control_->sums,
                           sizeof(UpdateSums) / sizeof(double) + control_word_count_, DType::kF64,
                           MemoryKind::kCuda};
  return reducer_.ReduceAll(sums, {stream});
}

}  // namespace gaccd
