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

Result<UpdateRecords> UpdateRecords::Create(std::size_t news_elements) {
  UpdateRecords records;
  records.news_elements_ = news_elements;
  const std::size_t page_bytes = sizeof(UpdateControl) + news_elements * sizeof(double);
  GACCD_ASSIGN_OR_RETURN(records.pages_,
                         PinnedBuffer::Allocate(kUnderway * page_bytes, "records of updates"));
  for (std::size_t r = 0; r < records.records_.size(); ++r) {
    UpdateRecord& record = records.records_[r];
    std::byte* page = records.pages_.as<std::byte>() + r * page_bytes;
    record.page = new (page) UpdateControl;
    record.news = {reinterpret_cast<double*>(page + sizeof(UpdateControl)), news_elements};
    for (CudaEvent* event : {&record.begin, &record.computed, &record.reduced, &record.end}) {
      GACCD_ASSIGN_OR_RETURN(*event, CudaEvent::Create(CudaEvent::Kind::kTiming));
    }
  }
  return records;
}

Status UpdateRecords::Begin(cudaStream_t stream) {
  if (count_ == kUnderway) return FiguresNotTaken();
  ++count_;
  UpdateRecord& record = current();
  record.counted = 0;
  record.data_s = 0;
  return CudaStatus(cudaEventRecord(record.begin.get(), stream), "start of an update");
}

Status UpdateRecords::SendWish(const UpdateRecord& record, UpdateControl* control,
                               cudaStream_t stream) {
  return CudaStatus(cudaMemcpyAsync(&control->wish, &record.page->wish, sizeof(UpdateWish),
                                    cudaMemcpyHostToDevice, stream),
                    "copy of an update's settings");
}

Status UpdateRecords::SendNews(UpdateControl* control, cudaStream_t stream) {
  const std::span<const double> news = current().news;
  if (news.empty()) return Status::Ok();
  return CudaStatus(
      cudaMemcpyAsync(control + 1, news.data(), news.size_bytes(), cudaMemcpyHostToDevice, stream),
      "copy of an update's news");
}

Status UpdateRecords::End(const UpdateControl* control, cudaStream_t stream) {
  const UpdateRecord& record = current();
  const std::size_t bytes = sizeof(UpdateControl) + news_elements_ * sizeof(double);
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpyAsync(record.page, control, bytes, cudaMemcpyDeviceToHost, stream),
                 "copy of an update's figures"));
  return CudaStatus(cudaEventRecord(record.end.get(), stream), "end of an update");
}

void UpdateRecords::DropOldest() {
  oldest_ = (oldest_ + 1) % kUnderway;
  --count_;
}

Result<UpdateFigures> FiguresOf(const UpdateRecord& record) {
  UpdateFigures figures{
      .samples = record.settings.samples,
      .loss = record.page->sums.loss / static_cast<double>(record.settings.samples),
      .grad_norm = record.page->verdict.norm,
      .finite = record.page->verdict.finite != 0,
      .news = record.news};
  GACCD_ASSIGN_OR_RETURN(const double steps_s, Seconds(record.begin, record.computed));
  GACCD_ASSIGN_OR_RETURN(figures.reduce_s, Seconds(record.computed, record.reduced));
  GACCD_ASSIGN_OR_RETURN(figures.opt_s, Seconds(record.reduced, record.end));
  figures.data_s = std::min(record.data_s, steps_s);
  figures.fwd_bwd_s = steps_s - figures.data_s;
  figures.dur_s = steps_s + figures.reduce_s + figures.opt_s;
  return figures;
}

}  // namespace gaccd
