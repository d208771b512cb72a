// Waiting for a GPU, but not in its driver: the host asks again and again, the communicator too,
// so that a peer that is lost ends the wait.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>
#include <utility>

#include "collectives/base/cuda.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

class DeviceWaiter {
 public:
  explicit DeviceWaiter(Communicator& comm) : comm_(comm) {}
  // Asked, too, in place of other communicators; until the last call of those below.
  void AlsoAsk(std::function<Status()> poll) { also_ = std::move(poll); }

  // Whether `event` has happened. Errors of the device, and of the communicator: what a collective
  // left behind that was given up is no result.
  Result<bool> Happened(const CudaEvent& event, std::string_view what);
  Status Wait(const CudaEvent& event, std::string_view what);
  // Until everything on `stream` so far is done.
  Status WaitForStream(cudaStream_t stream, std::string_view what);
  // Whether nothing is left on `stream` within `limit`. An error of the device counts as its end.
  static bool EndsWithin(cudaStream_t stream, std::chrono::milliseconds limit);

 private:
  Communicator& comm_;
  std::function<Status()> also_;
  CudaEvent mark_;
};

}  // namespace gaccd
