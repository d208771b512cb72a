#include "collectives/comm/nccl_pending.h"

#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Whether the event has completed. Reports errors of earlier kernels.
Result<bool> HasCompleted(const CudaEvent& event) {
  const cudaError_t error = cudaEventQuery(event.get());
  if (error == cudaErrorNotReady) return false;
  GACCD_RETURN_IF_ERROR(CudaStatus(error, "the GPU failed"));
  return true;
}

}  // namespace

Result<CudaEvent> NcclPending::AcquireEvent() {
  if (events_.empty()) return CudaEvent::Create();
  CudaEvent event = std::move(events_.back());
  events_.pop_back();
  return event;
}

Status NcclPending::Begin(Entry entry) {
  GACCD_ASSIGN_OR_RETURN(CudaEvent start, AcquireEvent());
  GACCD_ASSIGN_OR_RETURN(CudaEvent end, AcquireEvent());
  open_ = PendingOp{entry, std::move(start), std::move(end), Clock::now(), std::nullopt};
  return Status::Ok();
}

void NcclPending::End() { pending_.push_back(*std::exchange(open_, std::nullopt)); }

Status NcclPending::PollHealth() {
  // Collectives on several streams may end in a different order.
  for (auto op = pending_.begin(); op != pending_.end();) {
    bool done = false;
    const Status status = PollHealth(&*op, &done);
    if (!status.ok()) {
      return {status.kind(),
              StrCat(Name(op->entry.operation), " #", op->entry.sequence, ": ", status.message())};
    }
    if (!done) {
      ++op;
      continue;
    }
    events_.push_back(std::move(op->start));
    events_.push_back(std::move(op->end));
    op = pending_.erase(op);
  }
  return Status::Ok();
}

Status NcclPending::PollHealth(PendingOp* op, bool* done) {
  if (!op->deadline.has_value()) {
    GACCD_ASSIGN_OR_RETURN(const bool started, HasCompleted(op->start));
    if (!started) return Status::Ok();
    op->deadline.emplace(bound_);
  }
  GACCD_ASSIGN_OR_RETURN(*done, HasCompleted(op->end));
  return Status::Ok();
}

std::optional<NcclPending::Late> NcclPending::FindLate() {
  for (PendingOp& op : pending_) {
    if (!op.deadline.has_value() || !op.deadline->PeersAreLate()) continue;
    return Late{op.entry, op.deadline->Elapsed()};
  }
  return std::nullopt;
}

}  // namespace gaccd
