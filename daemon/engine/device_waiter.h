// DeviceWaiter: waits for a GPU by polling instead of blocking in the driver. It also polls the
// communicator, so that the loss of a peer ends the wait.
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
  // Also polls `poll`, for other communicators. It must stay valid until the last call of the
  // functions below.
  void AddPollFunction(std::function<Status()> poll) { also_ = std::move(poll); }

  // Whether `event` has completed. Returns errors of the device and of the communicator: data of an
  // aborted collective are not a result.
  Result<bool> HasCompleted(const CudaEvent& event, std::string_view what);
  Status Wait(const CudaEvent& event, std::string_view what);
  // Waits until everything enqueued on `stream` so far is done.
  Status WaitForStream(cudaStream_t stream, std::string_view what);
  // Whether all work on `stream` ends within `limit`. An error of the device counts as the end.
  static bool FinishesWithin(cudaStream_t stream, std::chrono::milliseconds limit);

 private:
  Communicator& comm_;
  std::function<Status()> also_;
  CudaEvent mark_;
};

}  // namespace gaccd
