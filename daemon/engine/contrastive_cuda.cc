#include "daemon/engine/contrastive_cuda.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/optim/optimizer_cuda.h"

namespace gaccd {

CudaContrast::CudaContrast(const ContrastiveModel& model, const ReplicaOptions& sizes,
                           cudaStream_t stream)
    : window_(model, sizes.effective_batch, sizes.rank_samples),
      stream_(stream),
      rank_samples_(sizes.rank_samples),
      micro_batch_(sizes.micro_batches.empty() ? 0 : *sizes.micro_batches.rbegin()) {}

void CudaContrast::AddMemory(DeviceMemory* memory) const {
  memory->Add("representations",
              static_cast<std::int64_t>(RowBytes(rank_samples_) + RowBytes(micro_batch_)));
  memory->Add("control", sizeof(Words));
}

Status CudaContrast::Allocate() {
  GACCD_ASSIGN_OR_RETURN(rows_, DeviceBuffer::Allocate(RowBytes(rank_samples_), "representations"));
  GACCD_ASSIGN_OR_RETURN(gradient_,
                         DeviceBuffer::Allocate(RowBytes(micro_batch_), "representations"));
  GACCD_ASSIGN_OR_RETURN(words_, DeviceBuffer::Allocate(sizeof(Words), "control"));
  return Status::Ok();
}

void CudaContrast::Begin() {
  window_.Begin();
  encoded_ = 0;
  next_ = 0;
}

Result<float*> CudaContrast::Append(std::int64_t samples) {
  if (samples > rank_samples_ - encoded_) {
    return Status(ErrorKind::kInternal,
                  StrCat("expected at most ", rank_samples_,
                         " samples of this rank in an update, found ", encoded_ + samples));
  }
  float* rows = rows_.as<float>() + encoded_ * row();
  encoded_ += samples;
  return rows;
}

Status CudaContrast::Copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return Status::Ok();
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copy of representations");
}

Status CudaContrast::ComputeContrastiveLoss(Communicator& comm, DeviceWaiter& waiter,
                                            const float* parameters, double loss_scale) {
  const std::size_t bytes = RowBytes(encoded_);
  // A copy to memory that is not page-locked blocks; what it would wait for is waited for here.
  GACCD_RETURN_IF_ERROR(waiter.WaitForStream(stream_, "representations"));
  float log_scale = 0;
  GACCD_RETURN_IF_ERROR(
      Copy(window_.Append(encoded_), rows_.data(), bytes, cudaMemcpyDeviceToHost));
  GACCD_RETURN_IF_ERROR(Copy(&log_scale, parameters + window_.model().log_scale, sizeof log_scale,
                             cudaMemcpyDeviceToHost));
  GACCD_RETURN_IF_ERROR(waiter.WaitForStream(stream_, "representations"));

  GACCD_RETURN_IF_ERROR(window_.ComputeContrastiveLoss(comm, double{log_scale}, loss_scale));

  GACCD_ASSIGN_OR_RETURN(const float* gradients, window_.Next(encoded_));
  const Words words{.loss = window_.sums().loss,
                    .scale_gradient = static_cast<float>(window_.sums().log_scale_gradient)};
  GACCD_RETURN_IF_ERROR(Copy(rows_.data(), gradients, bytes, cudaMemcpyHostToDevice));
  GACCD_RETURN_IF_ERROR(Copy(words_.data(), &words, sizeof words, cudaMemcpyHostToDevice));
  return waiter.WaitForStream(stream_, "gradients of representations");
}

Status CudaContrast::Next(std::int64_t samples) {
  if (samples > encoded_ - next_) {
    return {ErrorKind::kInternal,
            StrCat("the passes of an update differ: ", encoded_, " samples were encoded, ",
                   next_ + samples, " are replayed")};
  }
  const float* from = rows_.as<float>() + next_ * row();
  next_ += samples;
  return Copy(gradient_.data(), from, RowBytes(samples), cudaMemcpyDeviceToDevice);
}

Status CudaContrast::SetScaleGradient(float* gradients) {
  if (!window_.model().learns_scale) return Status::Ok();
  return Copy(gradients + window_.model().log_scale, &words()->scale_gradient, sizeof(float),
              cudaMemcpyDeviceToDevice);
}

Status CudaContrast::LimitScale(const UpdateControl* control, float* parameters) {
  return LimitParameter(stream_, control, parameters + window_.model().log_scale,
                        static_cast<float>(window_.max_log_scale()));
}

}  // namespace gaccd
