// UpdateRecords: what the updates that are on their way will have found. Each has a page of
// page-locked memory to which the GPU copies its UpdateControl at the end, and events that take the
// time. Reading a finished page costs the GPU nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "collectives/base/cuda.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/engine/engine.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

// One update. The events happen in this order.
struct UpdateRecord {
  UpdateSettings settings;
  std::int64_t optimizer_updates = 0;  // before this one
  std::int64_t counted = 0;            // samples of this rank, by the host
  double data_s = 0;                   // while the GPU had nothing to do
  CudaEvent begin;
  CudaEvent computed;  // all micro-steps
  CudaEvent reduced;
  CudaEvent end;
  UpdateControl* page = nullptr;  // page-locked
  std::span<double> news;         // behind it
};

class UpdateRecords {
 public:
  // Updates whose figures were not taken; one more is refused.
  static constexpr int kUnderway = 2;

  static Result<UpdateRecords> Create(std::size_t news_elements);

  // A record for a new update; it marks its start on `stream`. kInternal when kUnderway figures
  // were not taken.
  Status Begin(cudaStream_t stream);
  [[nodiscard]] UpdateRecord& current() { return records_[(oldest_ + count_ - 1) % kUnderway]; }
  [[nodiscard]] const UpdateRecord& current() const {
    return records_[(oldest_ + count_ - 1) % kUnderway];
  }
  // The GPU copies its wish from the page, before the first micro-step.
  Status SendWish(const UpdateRecord& record, UpdateControl* control, cudaStream_t stream);
  // The GPU copies the news from the page to behind its control, before the reduction.
  Status SendNews(UpdateControl* control, cudaStream_t stream);
  // The GPU copies its control and its news to the page; marks the end.
  Status End(const UpdateControl* control, cudaStream_t stream);

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] const UpdateRecord& oldest() const { return records_[oldest_]; }
  void DropOldest();

  // Bytes of page-locked memory.
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(pages_.bytes()); }

 private:
  std::array<UpdateRecord, kUnderway> records_;
  std::size_t news_elements_ = 0;
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
  PinnedBuffer pages_;
};

// Loss, norm and times of a finished update, whatever its verdict.
Result<UpdateFigures> FiguresOf(const UpdateRecord& record);

}  // namespace gaccd
