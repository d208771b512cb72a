// Entry points of the CUDA runtime: streams, events, host functions; and kernels.
#include <cuda_runtime_api.h>

#include <utility>

#include "collectives/base/strings.h"
#include "tests/standin/allocations.h"
#include "tests/standin/capture.h"
#include "tests/standin/fatal.h"
#include "tests/standin/faults.h"
#include "tests/standin/runtime.h"
#include "tests/standin/settings.h"
#include "tests/standin/simt.h"
#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

cudaError_t CreateStream(cudaStream_t* stream, unsigned flags, int priority) {
  if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0) return Leave(cudaErrorInvalidValue);
  const std::lock_guard lock(Lock());
  *stream = AddStream(CurrentDevice(), flags, priority)->handle;
  return cudaSuccess;
}

cudaError_t CreateEvent(cudaEvent_t* event, unsigned flags) {
  constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming;
  if ((flags & ~kKnown) != 0) return Leave(cudaErrorInvalidValue);
  const std::lock_guard lock(Lock());
  *event = AddEvent(CurrentDevice(), flags)->handle;
  return cudaSuccess;
}

// An event that this graph records or waits for whenever it is launched.
cudaError_t AddEventNode(Stream& stream, const Event& event, NodeType type) {
  Node node;
  node.type = type;
  node.event = event.handle;
  return Leave(AddNode(stream, std::move(node)));
}

cudaError_t RecordEvent(cudaEvent_t event_handle, cudaStream_t stream_handle, unsigned flags,
                        const char* function) {
  const std::lock_guard lock(Lock());
  Event& event = GetEvent(event_handle, function);
  Stream& stream = GetStream(stream_handle, function);
  if ((flags & ~unsigned{cudaEventRecordExternal}) != 0) return Leave(cudaErrorInvalidValue);
  if (event.device != stream.device) return Leave(cudaErrorInvalidResourceHandle);
  if (stream.capture == nullptr) {
    event.capture_id = 0;
    event.last = NewPoint();
    Work work;
    work.what = "record an event";
    work.reach = event.last;
    Post(stream, std::move(work));
    return cudaSuccess;
  }
  if (flags == cudaEventRecordExternal) return AddEventNode(stream, event, NodeType::kEventRecord);
  if (stream.capture->invalid) return Leave(cudaErrorStreamCaptureInvalidated);
  event.capture_id = stream.capture->id;
  event.capture_nodes = stream.frontier;
  return cudaSuccess;
}

// The latest record of the event; `captured`: where there is none, since a capture recorded it.
cudaError_t FindPoint(cudaEvent_t handle, const char* function, Point** point) {
  const std::lock_guard lock(Lock());
  const Event& event = GetEvent(handle, function);
  if (event.capture_id != 0) {
    if (Capture* capture = FindCapture(event.capture_id); capture != nullptr) {
      Invalidate(*capture, cudaErrorCapturedEvent);
    }
    return cudaErrorCapturedEvent;
  }
  *point = event.last;
  return CheckUnsafe();
}

// What a stream may be asked from the host while it captures: nothing.
cudaError_t CheckNotCapturing(Stream& stream) {
  if (stream.capture != nullptr) {
    return Invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
  }
  return CheckUnsafe();
}

}  // namespace
}  // namespace gaccd::standin

using namespace gaccd::standin;  // NOLINT: the definitions below are the file's purpose

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return CreateStream(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return CreateStream(stream, flags, 0);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return CreateStream(stream, flags, priority);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  *priority = GetStream(handle, __func__).priority;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const cudaError_t error = Enter(__func__);
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, __func__);
  if (stream.legacy) return Leave(cudaErrorInvalidResourceHandle);
  if (stream.capture != nullptr) Fatal("cudaStreamDestroy of a stream that is capturing");
  RemoveStream(stream);
  return error;
}

// Also after an error of the device, as the real one: what was enqueued is over then.
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const cudaError_t entered = Enter(__func__);
  if (entered != cudaSuccess && !DeviceFailed(CurrentDevice())) return entered;
  Point* point = nullptr;
  int device = 0;
  {
    const std::lock_guard lock(Lock());
    Stream& stream = GetStream(handle, __func__);
    if (const cudaError_t error = CheckNotCapturing(stream); error != cudaSuccess) {
      return Leave(error);
    }
    point = Mark(stream);
    device = stream.device;
  }
  WaitOnHost(point);
  return Leave(DeviceError(device));
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, __func__);
  if (const cudaError_t error = CheckNotCapturing(stream); error != cudaSuccess) {
    return Leave(error);
  }
  CountOne(Counting().queries);
  if (!stream.worker->Idle()) return Leave(cudaErrorNotReady);
  return Leave(DeviceError(stream.device));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t event_handle,
                                unsigned flags) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if ((flags & ~unsigned{cudaEventWaitExternal}) != 0) return Leave(cudaErrorInvalidValue);
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(stream_handle, __func__);
  const Event& event = GetEvent(event_handle, __func__);
  if (flags == cudaEventWaitExternal && stream.capture != nullptr) {
    return AddEventNode(stream, event, NodeType::kEventWait);
  }
  if (event.capture_id != 0) return Leave(JoinCapture(stream, event));
  if (event.last == nullptr) return cudaSuccess;  // never recorded: nothing to wait for
  if (stream.capture != nullptr) {
    return Leave(Invalidate(*stream.capture, cudaErrorStreamCaptureIsolation));
  }
  PostWait(stream, event.last);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return CreateEvent(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return CreateEvent(event, flags);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const cudaError_t error = Enter(__func__);
  const std::lock_guard lock(Lock());
  RemoveEvent(GetEvent(handle, __func__));
  return error;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (EventsWait()) WaitForPlace(stream, __func__);
  return RecordEvent(event, stream, cudaEventRecordDefault, __func__);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return RecordEvent(event, stream, flags, __func__);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  CountOne(Counting().queries);
  Point* point = nullptr;
  if (const cudaError_t error = FindPoint(handle, __func__, &point); error != cudaSuccess) {
    return Leave(error);
  }
  const bool done = point == nullptr || point->signal.Reached(1);
  return Leave(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  Point* point = nullptr;
  if (const cudaError_t error = FindPoint(handle, __func__, &point); error != cudaSuccess) {
    return Leave(error);
  }
  if (point != nullptr) WaitOnHost(point);
  return Leave(DeviceError(CurrentDevice()));
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  Point* points[2] = {};
  const std::lock_guard lock(Lock());
  for (int i = 0; i < 2; ++i) {
    const Event& event = GetEvent(i == 0 ? start : end, __func__);
    if ((event.flags & cudaEventDisableTiming) != 0 || event.last == nullptr) {
      return Leave(cudaErrorInvalidResourceHandle);
    }
    if (!event.last->signal.Reached(1)) return Leave(cudaErrorNotReady);
    points[i] = event.last;
  }
  *milliseconds = static_cast<float>(
      static_cast<double>(points[1]->nanoseconds - points[0]->nanoseconds) / 1e6);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  Work work;
  work.what = "host function";
  work.run = [function, argument] {
    const HostFunctionScope scope;
    function(argument);
  };
  return Leave(Submit(GetStream(handle, __func__), std::move(work), NodeType::kHost));
}
