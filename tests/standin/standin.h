// The stand-in GPU, as tests see it: how many there are, what they refuse, what happened. It is one
// per process, like a driver. Mistakes that real hardware would punish by wrong values, a crash or
// a hang stop the process with a message on stderr that begins with "stand-in GPU:" (for
// EXPECT_DEATH).
//
// Device memory is host memory, but nobody sees that: a pointer is checked wherever it is handed
// in. A stream is a thread, so work without an event between it really races, and TSan sees it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gaccd::standin {

enum class Driver {
  kPresent,
  kMissing,   // every call gives cudaErrorInsufficientDriver
  kNoDevice,  // every call gives cudaErrorNoDevice
};

// Before main() these come from the environment: GACCD_STANDIN_DEVICES, GACCD_STANDIN_MEMORY
// (bytes), GACCD_STANDIN_SEED (see SetDelays, with 200 us), so that whole programs can be run too.
struct Options {
  int devices = 1;
  std::size_t memory_bytes = std::size_t{4} << 30;  // of each device
  Driver driver = Driver::kPresent;
};

// The machine as new: these options, no error, no delays, counters at 0. REQUIRES: no stream,
// event, graph or allocation is left; names what is left and stops the process.
void Reset(const Options& options = {});

// The nth call from now (1 = the next) of this function, on any thread, gives `error` and does
// nothing else. "kernel" is the start of a kernel.
void FailCall(const std::string& function, int nth, cudaError_t error);
// The nth kernel from now that runs on any stream fails as by a bad pointer: nothing runs on its
// device any more, and every call for that device gives `error`, until Reset().
void FailKernel(int nth, cudaError_t error);
// The same, at once.
void FailDevice(int device, cudaError_t error);

// Every piece of work waits a random time of up to `max_microseconds` before it runs, and blocks
// and threads of some kernels run in reverse order. 0 microseconds: no delays.
void SetDelays(std::uint64_t seed, int max_microseconds);

// A launch of a kernel (not of a library) waits while the stream has so many pieces of work that
// are not done, as a real one does at some 1000.
inline constexpr int kMaxPending = 1000;
void SetMaxPending(int pieces);
// Whether the record of an event waits, too, as a real one does. Not otherwise: with few pieces it
// would wait where a launch would not be reached.
void SetEventsWait(bool wait);

// While one lives, events are stamped with what Spend() was given in all streams, and not with the
// machine's time: nothing sleeps, and a time that is measured does not depend on the load.
class VirtualClock {
 public:
  VirtualClock();
  ~VirtualClock();
  VirtualClock(const VirtualClock&) = delete;
  VirtualClock& operator=(const VirtualClock&) = delete;
};
// A piece of work takes so long: it sleeps, or adds to the virtual clock.
void Spend(int microseconds);

// Since Reset(), of all threads.
struct Counters {
  std::int64_t host_waits = 0;  // calls that wait for a device, whether or not there was work
  std::int64_t mallocs = 0;     // of device or page-locked memory
  std::int64_t frees = 0;
  std::int64_t kernels = 0;  // started by a call, not by a graph
  std::int64_t copies = 0;   // the same, of memcpy and memset
  std::int64_t graph_launches = 0;
  std::int64_t graph_nodes = 0;  // that ran
  std::int64_t queries = 0;      // of streams and events
};
[[nodiscard]] Counters Count();

// Bytes that live now on a device (-1: page-locked host memory).
[[nodiscard]] std::int64_t LiveBytes(int device);

// Memory that some work touches; 0 bytes: just that address.
struct Touches {
  const void* address = nullptr;
  std::size_t bytes = 0;
};
// Puts `run` into the stream as a library's kernel would be: in order, or as a node of the graph
// when the stream is capturing (then it runs at every launch). It may block. `what` must live on.
cudaError_t Enqueue(cudaStream_t stream, const char* what, std::function<void()> run,
                    const std::vector<Touches>& touches);

// Whether all of it is live memory of the device that is current.
[[nodiscard]] bool IsDeviceMemory(const void* address, std::size_t bytes);

}  // namespace gaccd::standin
