// ContrastiveWindow: the representations of this rank in one update, from the first forward pass to
// their gradients. The mathematics are in ops/loss/info_nce.h. Used by one thread.
//
//   Order of calls: Begin, Append (every micro-batch), ComputeContrastiveLoss,
//   Next (every micro-batch, in the same order)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/comm/communicator.h"
#include "daemon/ops/loss/info_nce.h"
#include "daemon/replica/model.h"

namespace gaccd {

class ContrastiveWindow {
 public:
  // Allocates PlannedBytes() for this many samples over all ranks and on this rank. f64_sums: see
  // InfoNce.
  ContrastiveWindow(const ContrastiveModel& model, std::int64_t effective_batch,
                    std::int64_t rank_samples, bool f64_sums = false);
  [[nodiscard]] static std::int64_t PlannedBytes(const ContrastiveModel& model,
                                                 std::int64_t effective_batch,
                                                 std::int64_t rank_samples);

  void Begin();
  // Memory for the rows of the next `samples` samples. Valid until the next call.
  [[nodiscard]] float* Append(std::int64_t samples);
  // Collective, also for ranks without samples: computes the loss over the samples of all ranks, in
  // rank order, and the gradients of this rank's rows.
  Status ComputeContrastiveLoss(Communicator& comm, double log_scale, double loss_scale = 1);
  // The gradients of the rows of the next `samples` samples. kInternal if fewer are left.
  Result<const float*> Next(std::int64_t samples);

  // Number of appended samples, and of samples whose gradients Next() has returned.
  [[nodiscard]] std::int64_t encoded() const { return std::ssize(own_rows_) / row(); }
  [[nodiscard]] std::int64_t replayed() const { return next_ / row(); }
  [[nodiscard]] std::span<float> rows() { return own_rows_; }
  [[nodiscard]] std::span<const float> gradients() const { return gradients_; }

  // Sums of this rank's samples, after ComputeContrastiveLoss().
  [[nodiscard]] const ContrastiveSums& sums() const { return sums_; }
  // Upper limit of log t.
  [[nodiscard]] double max_log_scale() const;

 private:
  [[nodiscard]] std::int64_t row() const { return 2 * model_.width; }  // elements per sample
  // Gathers `elements` values of every sample; those of this rank are already in place.
  Status Gather(Communicator& comm, const MutableBuffer& all, std::int64_t elements) const;

  ContrastiveModel model_;
  InfoNce loss_;
  std::vector<float> own_rows_;
  std::vector<float> rows_;
  std::vector<double> log_sums_;
  std::vector<float> gradients_;
  std::vector<std::int64_t> samples_;  // by rank
  std::int64_t next_ = 0;
  ContrastiveSums sums_;
};

}  // namespace gaccd
