#include "daemon/engine/contrastive_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/engine/update_graph.h"

namespace gaccd {
namespace {

std::size_t Size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

}  // namespace

ContrastiveWindow::ContrastiveWindow(const ContrastiveModel& model, std::int64_t effective_batch,
                                     std::int64_t rank_samples, bool f64_sums)
    : model_(model), loss_(model.width, f64_sums) {
  own_rows_.reserve(Size(rank_samples * row()));
  gradients_.reserve(Size(rank_samples * row()));
  rows_.reserve(Size(effective_batch * row()));
  log_sums_.reserve(Size(effective_batch * 2));
}

std::int64_t ContrastiveWindow::PlannedBytes(const ContrastiveModel& model,
                                             std::int64_t effective_batch,
                                             std::int64_t rank_samples) {
  const std::int64_t floats = (2 * rank_samples + effective_batch) * 2 * model.width;
  return floats * static_cast<std::int64_t>(sizeof(float)) +
         effective_batch * 2 * static_cast<std::int64_t>(sizeof(double)) +
         InfoNce::Bytes(model.width);
}

void ContrastiveWindow::Begin() {
  own_rows_.clear();
  next_ = 0;
  sums_ = {};
}

float* ContrastiveWindow::Append(std::int64_t samples) {
  const std::size_t before = own_rows_.size();
  own_rows_.resize(before + Size(samples * row()));
  return own_rows_.data() + before;
}

// Ranks have other numbers of samples in every update, so each records its gathers.
Status ContrastiveWindow::Gather(Communicator& comm, const MutableBuffer& all,
                                 std::int64_t elements) const {
  std::vector<std::int64_t> counts;
  for (const std::int64_t samples : samples_) counts.push_back(samples * elements);
  UpdateGraph graph;
  GACCD_RETURN_IF_ERROR(graph.AllGather(comm, all, std::move(counts)));
  return graph.Run(graph.Since(0));
}

Status ContrastiveWindow::ComputeContrastiveLoss(Communicator& comm, double log_scale,
                                                 double loss_scale) {
  const std::int64_t own = encoded();
  const auto rank = static_cast<std::size_t>(comm.rank());
  std::vector<std::int64_t> counts(Size(comm.size()));
  counts[rank] = own;
  samples_.assign(counts.size(), 1);
  GACCD_RETURN_IF_ERROR(Gather(comm, View(std::span(counts)), 1));
  samples_ = std::move(counts);
  const std::int64_t all = std::accumulate(samples_.begin(), samples_.end(), std::int64_t{0});
  const std::int64_t first =
      std::accumulate(samples_.begin(), samples_.begin() + comm.rank(), std::int64_t{0});

  rows_.resize(Size(all * row()));
  std::ranges::copy(own_rows_, rows_.begin() + first * row());
  GACCD_RETURN_IF_ERROR(Gather(comm, View(std::span(rows_)), row()));

  const ContrastiveRows batch{.rows = rows_,
                              .width = model_.width,
                              .first = first,
                              .own = own,
                              .scale = std::exp(log_scale)};
  log_sums_.resize(Size(all * 2));
  loss_.LogSums(batch, std::span(log_sums_).subspan(Size(first * 2), Size(own * 2)));
  GACCD_RETURN_IF_ERROR(Gather(comm, View(std::span(log_sums_)), 2));

  gradients_.resize(own_rows_.size());
  sums_ = loss_.Gradients(batch, log_sums_, gradients_);
  for (float& gradient : gradients_) gradient *= static_cast<float>(loss_scale);
  sums_.log_scale_gradient *= loss_scale;
  return Status::Ok();
}

Result<const float*> ContrastiveWindow::Next(std::int64_t samples) {
  const std::int64_t end = next_ + samples * row();
  if (end > std::ssize(gradients_)) {
    return Status(ErrorKind::kInternal,
                  StrCat("the passes of an update differ: ", std::ssize(gradients_) / row(),
                         " samples were encoded, ", end / row(), " are replayed"));
  }
  const float* gradients = gradients_.data() + next_;
  next_ = end;
  return gradients;
}

double ContrastiveWindow::max_log_scale() const {
  return model_.max_scale > 0 ? std::log(model_.max_scale)
                              : std::numeric_limits<double>::infinity();
}

}  // namespace gaccd
