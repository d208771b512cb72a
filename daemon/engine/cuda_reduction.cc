#include "daemon/engine/cuda_reduction.h"

#include <algorithm>
#include <array>
#include <utility>

namespace gaccd {

Result<std::unique_ptr<CudaReduction>> CudaReduction::Create(
    Communicator& comm, CudaContext& context, UpdateGraph& graph, const FlatLayout& layout,
    float* gradients, UpdateControl* control, const CudaReductionOptions& options) {
  GACCD_ASSIGN_OR_RETURN(
      BucketPlan plan,
      GradientBuckets(layout, options.overlap ? options.bucket_elements : kOneBucket));
  std::unique_ptr<CudaReduction> reduction(new CudaReduction(context, graph, std::move(plan)));
  GACCD_RETURN_IF_ERROR(reduction->Record(
      comm, {gradients, static_cast<std::size_t>(layout.size())}, control, options));
  // The last bucket is complete when the micro-step is.
  if (options.overlap) reduction->marks_.resize(reduction->plan_.buckets().size() - 1);
  for (CudaEvent& mark : reduction->marks_) {
    GACCD_ASSIGN_OR_RETURN(mark, CudaEvent::Create());
  }
  reduction->StartRecording();
  return reduction;
}

Status CudaReduction::Record(Communicator& comm, std::span<float> gradients, UpdateControl* control,
                             const CudaReductionOptions& options) {
  const StreamHandle stream{context_.reduce()};
  const MutableBuffer counts{&control->sums,
                             sizeof(UpdateSums) / sizeof(double) + options.control_word_count,
                             DType::kF64, MemoryKind::kCuda};
  for (const Bucket& bucket : plan_.buckets()) {
    const bool last = &bucket == &plan_.buckets().back();
    const std::size_t begin = graph_.size();
    if (options.shards != nullptr) {
      GACCD_RETURN_IF_ERROR(
          options.shards->RecordReduce(graph_, gradients, static_cast<std::int64_t>(bucket.offset),
                                       static_cast<std::int64_t>(PaddedElements(bucket)), stream));
      if (last) GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm, {&counts, 1}, stream));
    } else {
      const MutableBuffer part{gradients.data() + bucket.offset, bucket.elements, DType::kF32,
                               MemoryKind::kCuda};
      const std::array all{part, counts};
      GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm, std::span(all).first(last ? 2 : 1), stream));
    }
    sums_.push_back(graph_.Since(begin));
  }
  return Status::Ok();
}

std::size_t CudaReduction::PaddedElements(const Bucket& bucket) const {
  std::size_t end = plan_.buffer_elements();
  for (const Bucket& other : plan_.buckets()) {
    if (other.offset > bucket.offset) end = std::min(end, other.offset);
  }
  return end - bucket.offset;
}

void CudaReduction::StartRecording() {
  missing_.clear();
  for (const Bucket& bucket : plan_.buckets()) missing_.push_back(bucket.gradients);
}

Status CudaReduction::Ready(std::size_t parameter) {
  const std::size_t bucket = plan_.bucket_of()[parameter];
  return --missing_[bucket] == 0 ? Mark(bucket) : Status::Ok();
}

Status CudaReduction::EndRecording() {
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

Status CudaReduction::Enqueue(const CudaEvent& computed) {
  for (std::size_t bucket = 0; bucket < sums_.size(); ++bucket) {
    const CudaEvent& complete = bucket < marks_.size() ? marks_[bucket] : computed;
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamWaitEvent(context_.reduce(), complete.get(), 0),
                                     "wait for gradients"));
    GACCD_RETURN_IF_ERROR(graph_.Run(sums_[bucket]));
  }
  return Status::Ok();
}

}  // namespace gaccd
