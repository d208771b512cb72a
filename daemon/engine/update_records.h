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
  UpdateControl* page = nullptr;    // page-locked
  std::span<double> control_words;  // after it
};

class UpdateRecords {
 public:
  // Updates whose result was not taken; one more is refused.
  static constexpr int kInFlight = 2;

  static Result<UpdateRecords> Create(std::size_t control_word_count);

  // A record for a new update; it marks its start on `stream`. kInternal when kInFlight results
  // were not taken.
  Status Begin(cudaStream_t stream);
  [[nodiscard]] UpdateRecord& current() { return records_[(oldest_ + count_ - 1) % kInFlight]; }
  [[nodiscard]] const UpdateRecord& current() const {
    return records_[(oldest_ + count_ - 1) % kInFlight];
  }
  // The GPU copies its inputs from the page, before the first micro-step.
  Status SendInputs(const UpdateRecord& record, UpdateControl* control, cudaStream_t stream);
  // The GPU copies the control words from the page to the place after its control, before the
  // reduction.
  Status SendControlWords(UpdateControl* control, cudaStream_t stream);
  // The GPU copies its control and its control words to the page; marks the end.
  Status End(const UpdateControl* control, cudaStream_t stream);

  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] const UpdateRecord& oldest() const { return records_[oldest_]; }
  void DropOldest();

  // Bytes of page-locked memory.
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(pages_.bytes()); }

 private:
  std::array<UpdateRecord, kInFlight> records_;
  std::size_t control_word_count_ = 0;
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
  PinnedBuffer pages_;
};

// Loss, norm and times of a finished update, whatever its verdict.
Result<UpdateResult> ResultOf(const UpdateRecord& record);

}  // namespace gaccd
