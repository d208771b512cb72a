// ContrastiveWindow: the representations of one update of this rank, from their first forward pass
// to their gradients. The mathematics are in ops/loss/info_nce.h. Used by one thread.
//
//   Begin, Append (every micro-batch), ComputeContrastiveLoss, Next (every micro-batch, in the same
//   order)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/comm/communicator.h"
#include "daemon/ops/loss/info_nce.h"
#include "daemon/replica/model.h"

namespace gaccd {

class ContrastiveWindow {
 public:
  // For so many samples of all ranks and of this one, no memory is taken after this.
  ContrastiveWindow(const ContrastiveModel& model, std::int64_t effective_batch,
                    std::int64_t rank_samples);

  void Begin();
  // Where the rows of the next `samples` samples are to be written. Valid until the next call.
  [[nodiscard]] float* Append(std::int64_t samples);
  // Collective, also for ranks without samples: the loss over all samples of all ranks, in the
  // order of the ranks, and the gradients of the own rows.
  Status ComputeContrastiveLoss(Communicator& comm, double log_scale, double loss_scale = 1);
  // The gradients of the rows of the next `samples` samples. kInternal when there are not so many.
  Result<const float*> Next(std::int64_t samples);

  // Samples that were appended, and of them those whose gradients Next() has returned.
  [[nodiscard]] std::int64_t encoded() const { return std::ssize(own_rows_) / row(); }
  [[nodiscard]] std::int64_t replayed() const { return next_ / row(); }
  [[nodiscard]] std::span<float> rows() { return own_rows_; }
  [[nodiscard]] std::span<const float> gradients() const { return gradients_; }

  // Of the own samples, after ComputeContrastiveLoss().
  [[nodiscard]] const ContrastiveSums& sums() const { return sums_; }
  [[nodiscard]] const ContrastiveModel& model() const { return model_; }
  // The largest log t.
  [[nodiscard]] double max_log_scale() const;
  [[nodiscard]] std::int64_t planned_bytes() const;

 private:
  [[nodiscard]] std::int64_t row() const { return 2 * model_.width; }  // elements
  void SetCounts(std::int64_t elements);

  ContrastiveModel model_;
  InfoNce loss_;
  std::vector<float> own_rows_;
  std::vector<float> rows_;
  std::vector<double> own_log_sums_;
  std::vector<double> log_sums_;
  std::vector<float> gradients_;
  std::vector<std::int64_t> samples_;  // by rank
  std::vector<std::int64_t> counts_;   // by rank: elements of a message
  std::int64_t next_ = 0;
  ContrastiveSums sums_;
};

}  // namespace gaccd
