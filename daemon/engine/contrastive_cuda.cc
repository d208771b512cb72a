#include "daemon/engine/contrastive_cuda.h"

#include "collectives/base/strings.h"

namespace gaccd {

CudaRows::CudaRows(const ContrastiveModel& model, const ReplicaOptions& sizes, cudaStream_t stream)
    : model_(model),
      stream_(stream),
      rank_samples_(sizes.rank_samples),
      micro_batch_(sizes.largest_micro_batch()) {}

void CudaRows::AddMemory(DeviceMemory* memory) const {
  memory->Add("representations",
              static_cast<std::int64_t>(RowBytes(rank_samples_) + RowBytes(micro_batch_)));
  memory->Add("control", sizeof(Words));
}

Status CudaRows::Allocate() {
  GACCD_ASSIGN_OR_RETURN(rows_, DeviceBuffer::Allocate(RowBytes(rank_samples_), "representations"));
  GACCD_ASSIGN_OR_RETURN(gradient_,
                         DeviceBuffer::Allocate(RowBytes(micro_batch_), "representations"));
  GACCD_ASSIGN_OR_RETURN(words_, DeviceBuffer::Allocate(sizeof(Words), "control"));
  return Status::Ok();
}

Result<float*> CudaRows::At(std::int64_t first, std::int64_t samples) {
  if (samples > rank_samples_ - first) {
    return Status(ErrorKind::kInternal,
                  StrCat("expected at most ", rank_samples_,
                         " samples of this rank in an update, found ", first + samples));
  }
  return row(first);
}

Status CudaRows::Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return Status::Ok();
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copy of representations");
}

Result<float> CudaRows::FetchRows(std::span<float> rows, const float* parameters,
                                  DeviceWaiter& waiter) {
  // A copy to pageable memory blocks in the driver, so wait by polling first.
  GACCD_RETURN_IF_ERROR(waiter.WaitForStream(stream_, "representations"));
  float log_scale = 0;
  GACCD_RETURN_IF_ERROR(Copy(rows.data(), rows_.data(), rows.size_bytes(), cudaMemcpyDeviceToHost));
  GACCD_RETURN_IF_ERROR(
      Copy(&log_scale, parameters + model_.log_scale, sizeof log_scale, cudaMemcpyDeviceToHost));
  GACCD_RETURN_IF_ERROR(waiter.WaitForStream(stream_, "representations"));
  return log_scale;
}

Status CudaRows::SetGradients(std::span<const float> gradients, const ContrastiveSums& sums,
                              DeviceWaiter& waiter) {
  const Words words{.loss = sums.loss,
                    .scale_gradient = static_cast<float>(sums.log_scale_gradient)};
  GACCD_RETURN_IF_ERROR(
      Copy(rows_.data(), gradients.data(), gradients.size_bytes(), cudaMemcpyHostToDevice));
  GACCD_RETURN_IF_ERROR(Copy(words_.data(), &words, sizeof words, cudaMemcpyHostToDevice));
  return waiter.WaitForStream(stream_, "gradients of representations");
}

Status CudaRows::Select(std::int64_t first, std::int64_t samples) {
  return Copy(gradient_.data(), row(first), RowBytes(samples), cudaMemcpyDeviceToDevice);
}

Status CudaRows::SetScaleGradient(float* gradients) {
  if (!model_.learns_scale) return Status::Ok();
  return Copy(gradients + model_.log_scale, &words()->scale_gradient, sizeof(float),
              cudaMemcpyDeviceToDevice);
}

}  // namespace gaccd
