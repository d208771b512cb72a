#include "daemon/engine/update_records.h"

#include <algorithm>
#include <cstddef>
#include <new>

#include "daemon/engine/engine_checks.h"

namespace gaccd {
namespace {

Result<double> Seconds(const CudaEvent& from, const CudaEvent& to) {
  float milliseconds = 0;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, from.get(), to.get()), "time of an update"));
  return static_cast<double>(milliseconds) / 1000;
}

}  // namespace

Result<UpdateRecords> UpdateRecords::Create(std::size_t control_word_count) {
  UpdateRecords records;
  records.control_word_count_ = control_word_count;
  const std::size_t page_bytes = sizeof(UpdateControl) + control_word_count * sizeof(double);
  GACCD_ASSIGN_OR_RETURN(records.pages_,
                         PinnedBuffer::Allocate(kInFlight * page_bytes, "records of updates"));
  for (std::size_t r = 0; r < records.records_.size(); ++r) {
    UpdateRecord& record = records.records_[r];
    std::byte* page = records.pages_.as<std::byte>() + r * page_bytes;
    record.page = new (page) UpdateControl;
    record.control_words = {reinterpret_cast<double*>(page + sizeof(UpdateControl)),
                            control_word_count};
    for (CudaEvent* event : {&record.begin, &record.computed, &record.reduced, &record.end}) {
      GACCD_ASSIGN_OR_RETURN(*event, CudaEvent::Create(CudaEvent::Kind::kTiming));
    }
  }
  return records;
}

Status UpdateRecords::Begin(cudaStream_t stream) {
  if (count_ == kInFlight) return ResultNotTaken();
  ++count_;
  UpdateRecord& record = current();
  record.counted = 0;
  record.data_s = 0;
  return CudaStatus(cudaEventRecord(record.begin.get(), stream), "start of an update");
}

Status UpdateRecords::SendInputs(const UpdateRecord& record, UpdateControl* control,
                                 cudaStream_t stream) {
  return CudaStatus(cudaMemcpyAsync(&control->inputs, &record.page->inputs, sizeof(UpdateInputs),
                                    cudaMemcpyHostToDevice, stream),
                    "copy of an update's settings");
}

Status UpdateRecords::SendControlWords(UpdateControl* control, cudaStream_t stream) {
  const std::span<const double> control_words = current().control_words;
  if (control_words.empty()) return Status::Ok();
  return CudaStatus(cudaMemcpyAsync(control + 1, control_words.data(), control_words.size_bytes(),
                                    cudaMemcpyHostToDevice, stream),
                    "copy of an update's control words");
}

Status UpdateRecords::End(const UpdateControl* control, cudaStream_t stream) {
  const UpdateRecord& record = current();
  const std::size_t bytes = sizeof(UpdateControl) + control_word_count_ * sizeof(double);
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(record.page, control, bytes, cudaMemcpyDeviceToHost, stream),
                 "copy of an update's result"));
  return CudaStatus(cudaEventRecord(record.end.get(), stream), "end of an update");
}

void UpdateRecords::DropOldest() {
  oldest_ = (oldest_ + 1) % kInFlight;
  --count_;
}

Result<UpdateResult> ResultOf(const UpdateRecord& record) {
  const UpdateSums& sums = record.page->sums;
  UpdateResult result{.samples = record.settings.samples,
                      .divisor = sums.divisor,
                      .loss = sums.loss / sums.divisor,
                      .grad_norm = record.page->verdict.norm,
                      .finite = record.page->verdict.finite != 0,
                      .control_words = record.control_words};
  GACCD_ASSIGN_OR_RETURN(const double steps_s, Seconds(record.begin, record.computed));
  GACCD_ASSIGN_OR_RETURN(result.reduce_s, Seconds(record.computed, record.reduced));
  GACCD_ASSIGN_OR_RETURN(result.opt_s, Seconds(record.reduced, record.end));
  result.data_s = std::min(record.data_s, steps_s);
  result.fwd_bwd_s = steps_s - result.data_s;
  result.dur_s = steps_s + result.reduce_s + result.opt_s;
  return result;
}

}  // namespace gaccd
