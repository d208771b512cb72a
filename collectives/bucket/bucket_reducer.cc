#include "collectives/bucket/bucket_reducer.h"

#include <algorithm>
#include <array>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status ReductionError(const std::string& what) {
  return {ErrorKind::kInternal, StrCat("reduction of gradients: ", what)};
}

}  // namespace

Result<BucketReducer> BucketReducer::Make(Communicator& comm, BucketPlan plan,
                                          MutableBuffer gradients) {
  if (gradients.count != plan.buffer_elements()) {
    return ReductionError(StrCat("expected a buffer of ", plan.buffer_elements(),
                                 " elements, found ", gradients.count));
  }
  return BucketReducer(comm, std::move(plan), gradients);
}

BucketReducer::BucketReducer(Communicator& comm, BucketPlan plan, MutableBuffer gradients)
    : comm_(&comm),
      plan_(std::move(plan)),
      gradients_(gradients),
      ready_(plan_.bucket_of().size()),
      missing_(plan_.buckets().size()) {
  for (std::size_t b = 0; b < missing_.size(); ++b) missing_[b] = plan_.buckets()[b].gradients;
}

Status BucketReducer::MarkReady(std::size_t gradient, StreamHandle stream) {
  if (gradient >= ready_.size()) {
    return ReductionError(
        StrCat("expected a gradient below ", ready_.size(), ", found ", gradient));
  }
  if (ready_[gradient]) {
    return ReductionError(StrCat("gradient ", gradient,
                                 " is announced twice in one cycle; gradients are "
                                 "reduced once, in the last micro-step"));
  }
  Note(gradient);
  return Start(stream, missing_.size());
}

Status BucketReducer::ReduceAll(StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(AnnounceAll());
  return Start(stream, missing_.size());
}

Status BucketReducer::ReduceAll(MutableBuffer with, StreamHandle stream) {
  GACCD_RETURN_IF_ERROR(AnnounceAll());
  GACCD_RETURN_IF_ERROR(Start(stream, missing_.size() - 1));
  GACCD_RETURN_IF_ERROR(comm_->AllReduceSums(std::array{Part(started_), with}, stream));
  ++started_;
  return Status::Ok();
}

Status BucketReducer::AnnounceAll() {
  if (announced_ == ready_.size()) {
    return ReductionError(
        "all gradients have been reduced in this cycle already; a second sum would count "
        "the first one again on every rank");
  }
  for (std::size_t g = 0; g < ready_.size(); ++g) {
    if (!ready_[g]) Note(g);
  }
  return Status::Ok();
}

Status BucketReducer::NextCycle() {
  if (announced_ != 0 && announced_ != ready_.size()) {
    const auto first = std::ranges::find(ready_, false) - ready_.begin();
    return ReductionError(StrCat("the cycle ends with ", announced_, " of ", ready_.size(),
                                 " gradients announced; gradient ", first, " is not ready"));
  }
  ready_.assign(ready_.size(), false);
  for (std::size_t b = 0; b < missing_.size(); ++b) missing_[b] = plan_.buckets()[b].gradients;
  announced_ = 0;
  started_ = 0;
  return Status::Ok();
}

void BucketReducer::Note(std::size_t gradient) {
  ready_[gradient] = true;
  --missing_[plan_.bucket_of()[gradient]];
  ++announced_;
}

MutableBuffer BucketReducer::Part(std::size_t bucket) const {
  const Bucket& place = plan_.buckets()[bucket];
  MutableBuffer part = gradients_;
  part.data = static_cast<std::byte*>(gradients_.data) + place.offset * SizeOf(part.dtype);
  part.count = place.elements;
  return part;
}

Status BucketReducer::Start(StreamHandle stream, std::size_t end) {
  while (started_ < end && missing_[started_] == 0) {
    const MutableBuffer part = Part(started_);
    GACCD_RETURN_IF_ERROR(comm_->AllReduceSum(part, part, stream));
    ++started_;
  }
  return Status::Ok();
}

}  // namespace gaccd
