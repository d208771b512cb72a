#include "collectives/comm/nccl_flights.h"

#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Whether the event has come. Errors of kernels in front of it show up here.
Result<bool> HasCome(const CudaEvent& event) {
  const cudaError_t error = cudaEventQuery(event.get());
  if (error == cudaErrorNotReady) return false;
  GACCD_RETURN_IF_ERROR(CudaStatus(error, "the GPU failed"));
  return true;
}

}  // namespace

Result<CudaEvent> NcclFlights::TakeEvent() {
  if (events_.empty()) return CudaEvent::Create();
  CudaEvent event = std::move(events_.back());
  events_.pop_back();
  return event;
}

Status NcclFlights::Begin(Entry entry, cudaStream_t stream) {
  GACCD_ASSIGN_OR_RETURN(CudaEvent start, TakeEvent());
  GACCD_ASSIGN_OR_RETURN(CudaEvent end, TakeEvent());
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(start.get(), stream), "cudaEventRecord"));
  open_ = Flight{entry, std::move(start), std::move(end), Clock::now(), std::nullopt};
  return Status::Ok();
}

Status NcclFlights::End(cudaStream_t stream) {
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(open_->end.get(), stream), "cudaEventRecord"));
  flights_.push_back(*std::exchange(open_, std::nullopt));
  return Status::Ok();
}

Status NcclFlights::Look() {
  // Collectives on several streams may end in another order than they were enqueued in.
  for (auto flight = flights_.begin(); flight != flights_.end();) {
    bool done = false;
    const Status status = Look(&*flight, &done);
    if (!status.ok()) {
      return {status.kind(), StrCat(Name(flight->entry.operation), " #", flight->entry.sequence,
                                    ": ", status.message())};
    }
    if (!done) {
      ++flight;
      continue;
    }
    events_.push_back(std::move(flight->start));
    events_.push_back(std::move(flight->end));
    flight = flights_.erase(flight);
  }
  return Status::Ok();
}

Status NcclFlights::Look(Flight* flight, bool* done) {
  if (!flight->deadline.has_value()) {
    GACCD_ASSIGN_OR_RETURN(const bool started, HasCome(flight->start));
    if (!started) return Status::Ok();
    flight->deadline.emplace(bound_);
  }
  GACCD_ASSIGN_OR_RETURN(*done, HasCome(flight->end));
  return Status::Ok();
}

std::optional<NcclFlights::Late> NcclFlights::FindLate() {
  for (Flight& flight : flights_) {
    if (!flight.deadline.has_value() || !flight.deadline->PeersAreLate()) continue;
    return Late{flight.entry, flight.deadline->Elapsed()};
  }
  return std::nullopt;
}

}  // namespace gaccd
