#include "daemon/engine/contrastive_window.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::size_t Size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

template <typename T>
std::int64_t Bytes(const std::vector<T>& values) {
  return static_cast<std::int64_t>(values.capacity() * sizeof(T));
}

}  // namespace

ContrastiveWindow::ContrastiveWindow(const ContrastiveModel& model, std::int64_t effective_batch,
                                     std::int64_t rank_samples)
    : model_(model), loss_(model.width) {
  own_rows_.reserve(Size(rank_samples * row()));
  gradients_.reserve(Size(rank_samples * row()));
  own_log_sums_.reserve(Size(rank_samples * 2));
  rows_.reserve(Size(effective_batch * row()));
  log_sums_.reserve(Size(effective_batch * 2));
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

void ContrastiveWindow::SetCounts(std::int64_t elements) {
  counts_.resize(samples_.size());
  std::ranges::transform(samples_, counts_.begin(),
                         [=](std::int64_t samples) { return samples * elements; });
}

Status ContrastiveWindow::ComputeContrastiveLoss(Communicator& comm, double log_scale,
                                                 double loss_scale) {
  std::int64_t own = encoded();
  samples_.resize(Size(comm.size()));
  counts_.assign(samples_.size(), 1);
  GACCD_RETURN_IF_ERROR(
      comm.AllGather(View(std::span(&own, 1)), counts_, View(std::span(samples_))));
  const std::int64_t all = std::accumulate(samples_.begin(), samples_.end(), std::int64_t{0});

  rows_.resize(Size(all * row()));
  SetCounts(row());
  GACCD_RETURN_IF_ERROR(
      comm.AllGather(View(std::span(own_rows_)), counts_, View(std::span(rows_))));

  const std::int64_t first =
      std::accumulate(samples_.begin(), samples_.begin() + comm.rank(), std::int64_t{0});
  const ContrastiveRows batch{.rows = rows_,
                              .width = model_.width,
                              .first = first,
                              .own = own,
                              .scale = std::exp(log_scale)};
  own_log_sums_.resize(Size(own * 2));
  loss_.LogSums(batch, own_log_sums_);
  log_sums_.resize(Size(all * 2));
  SetCounts(2);
  GACCD_RETURN_IF_ERROR(
      comm.AllGather(View(std::span(own_log_sums_)), counts_, View(std::span(log_sums_))));

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

std::int64_t ContrastiveWindow::planned_bytes() const {
  return Bytes(own_rows_) + Bytes(rows_) + Bytes(own_log_sums_) + Bytes(log_sums_) +
         Bytes(gradients_) + loss_.bytes();
}

}  // namespace gaccd
