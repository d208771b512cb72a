#include "daemon/engine/device_waiter.h"

#include <thread>

namespace gaccd {

Result<bool> DeviceWaiter::HasCompleted(const CudaEvent& event, std::string_view what) {
  const cudaError_t answer = cudaEventQuery(event.get());
  if (answer == cudaErrorNotReady) {
    (void)cudaGetLastError();  // an answer, not an error: the next check must not find it
  } else {
    GACCD_RETURN_IF_ERROR(CudaStatus(answer, what));
  }
  if (also_) GACCD_RETURN_IF_ERROR(also_());  // first: it knows what is waited for
  GACCD_RETURN_IF_ERROR(comm_.Poll());
  return answer == cudaSuccess;
}

Status DeviceWaiter::Wait(const CudaEvent& event, std::string_view what) {
  // Yield during a short wait, which costs no sleep; sleep during a long one, which frees the core:
  // for a millisecond where that is less than a hundredth of the wait.
  constexpr int kYieldPolls = 200;
  constexpr int kShortSleeps = 2000;  // of 20 us, which last 70 us or more
  for (int asked = 0;; ++asked) {
    GACCD_ASSIGN_OR_RETURN(const bool happened, HasCompleted(event, what));
    if (happened) return Status::Ok();
    if (asked < kYieldPolls) {
      std::this_thread::yield();
    } else {
      const bool longer = asked >= kYieldPolls + kShortSleeps;
      std::this_thread::sleep_for(std::chrono::microseconds(longer ? 1000 : 20));
    }
  }
}

Status DeviceWaiter::WaitForStream(cudaStream_t stream, std::string_view what) {
  if (mark_.get() == nullptr) {
    GACCD_ASSIGN_OR_RETURN(mark_, CudaEvent::Create());
  }
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(mark_.get(), stream), what));
  return Wait(mark_, what);
}

bool DeviceWaiter::FinishesWithin(cudaStream_t stream, std::chrono::milliseconds limit) {
  using Clock = std::chrono::steady_clock;
  for (const Clock::time_point end = Clock::now() + limit;;) {
    const cudaError_t answer = cudaStreamQuery(stream);
    (void)cudaGetLastError();
    if (answer == cudaSuccess) return true;
    if (answer != cudaErrorNotReady) {
      // The query may have failed for another reason; after a device error this returns at once.
      (void)cudaStreamSynchronize(stream);
      return true;
    }
    if (Clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace gaccd
