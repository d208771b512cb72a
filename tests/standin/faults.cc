#include "tests/standin/faults.h"

#include <array>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/base/strings.h"
#include "tests/standin/fatal.h"
#include "tests/standin/runtime.h"
#include "tests/standin/settings.h"

namespace gaccd::standin {
namespace {

struct WantedFailure {
  std::string function;
  int calls_left = 0;
  cudaError_t error = cudaSuccess;
};

struct Faults {
  std::mutex mutex;
  Options options;
  std::vector<WantedFailure> calls;
  std::atomic<bool> any_call{false};
  std::array<std::atomic<int>, kMaxDevices> device{};  // a cudaError_t
  std::atomic<int> kernels_left{0};                    // 0: none shall fail
  std::atomic<int> kernel_error{0};
  AtomicCounters counters;
};

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void ReportLeaks() {
  const std::string left = DescribeEverythingAlive();
  if (left.empty()) return;
  std::fprintf(stderr, "stand-in GPU: left at exit:%s\n", left.c_str());
  std::fflush(stderr);
  std::_Exit(66);
}

Faults* MakeFaults() {
  auto* faults = new Faults;
  faults->options.devices = static_cast<int>(FromEnvironment("GACCD_STANDIN_DEVICES", 1));
  faults->options.memory_bytes =
      FromEnvironment("GACCD_STANDIN_MEMORY", faults->options.memory_bytes);
  if (const std::uint64_t seed = FromEnvironment("GACCD_STANDIN_SEED", 0); seed != 0) {
    SetDelaySettings(seed, 200);
  }
  std::atexit(ReportLeaks);
  return faults;
}

Faults& Get() {
  static Faults* faults = MakeFaults();
  return *faults;
}

constinit thread_local cudaError_t last_error = cudaSuccess;
constinit thread_local int current_device = 0;
constinit thread_local int host_functions = 0;

cudaError_t WantedError(const char* function) {
  Faults& faults = Get();
  if (!faults.any_call.load(std::memory_order_relaxed)) return cudaSuccess;
  const std::lock_guard lock(faults.mutex);
  for (auto wanted = faults.calls.begin(); wanted != faults.calls.end(); ++wanted) {
    if (wanted->function != function || --wanted->calls_left > 0) continue;
    const cudaError_t error = wanted->error;
    faults.calls.erase(wanted);
    return error;
  }
  return cudaSuccess;
}

std::int64_t Read(const std::atomic<std::int64_t>& value) {
  return value.load(std::memory_order_relaxed);
}

}  // namespace

AtomicCounters& Counting() { return Get().counters; }

const Options& Machine() { return Get().options; }

int& CurrentDevice() { return current_device; }

cudaError_t Enter(const char* function) {
  if (host_functions > 0) Fatal(StrCat(function, " is called by a host function of a stream"));
  switch (Machine().driver) {
    case Driver::kPresent:
      break;
    case Driver::kMissing:
      return Leave(cudaErrorInsufficientDriver);
    case Driver::kNoDevice:
      return Leave(cudaErrorNoDevice);
  }
  if (const cudaError_t error = WantedError(function); error != cudaSuccess) return Leave(error);
  return Leave(DeviceError(current_device));
}

cudaError_t Leave(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t TakeLastError(bool keep) {
  const cudaError_t error = last_error;
  if (!keep) last_error = cudaSuccess;
  return error;
}

bool DeviceFailed(int device) { return DeviceError(device) != cudaSuccess; }

cudaError_t DeviceError(int device) {
  return static_cast<cudaError_t>(
      Get().device[static_cast<std::size_t>(device)].load(std::memory_order_relaxed));
}

bool KernelFails(int device) {
  Faults& faults = Get();
  if (faults.kernels_left.load(std::memory_order_relaxed) == 0) return false;
  if (faults.kernels_left.fetch_sub(1, std::memory_order_relaxed) != 1) return false;
  FailDevice(device, static_cast<cudaError_t>(faults.kernel_error.load()));
  return true;
}

HostFunctionScope::HostFunctionScope() { ++host_functions; }
HostFunctionScope::~HostFunctionScope() { --host_functions; }

void Reset(const Options& options) {
  if (const std::string left = DescribeEverythingAlive(); !left.empty()) {
    Fatal(StrCat("left at Reset():", left));
  }
  if (options.devices < 1 || options.devices > kMaxDevices) {
    Fatal(StrCat(options.devices, " devices; wanted are 1 to ", kMaxDevices));
  }
  Faults& faults = Get();
  const std::lock_guard lock(faults.mutex);
  faults.options = options;
  faults.calls.clear();
  faults.any_call = false;
  for (auto& error : faults.device) error = 0;
  faults.kernels_left = 0;
  SetDelaySettings(0, 0);
  AtomicCounters& c = faults.counters;
  for (auto* counter : {&c.host_waits, &c.mallocs, &c.frees, &c.kernels, &c.copies,
                        &c.graph_launches, &c.graph_nodes, &c.queries}) {
    *counter = 0;
  }
  last_error = cudaSuccess;
  current_device = 0;
}

void FailCall(const std::string& function, int nth, cudaError_t error) {
  Faults& faults = Get();
  const std::lock_guard lock(faults.mutex);
  faults.calls.push_back({function, nth, error});
  faults.any_call = true;
}

void FailKernel(int nth, cudaError_t error) {
  Get().kernel_error = error;
  Get().kernels_left = nth;
}

void FailDevice(int device, cudaError_t error) {
  Get().device[static_cast<std::size_t>(device)] = error;
}

void SetDelays(std::uint64_t seed, int max_microseconds) {
  SetDelaySettings(seed, max_microseconds);
}

Counters Count() {
  const AtomicCounters& c = Get().counters;
  Counters result;
  result.host_waits = Read(c.host_waits);
  result.mallocs = Read(c.mallocs);
  result.frees = Read(c.frees);
  result.kernels = Read(c.kernels);
  result.copies = Read(c.copies);
  result.graph_launches = Read(c.graph_launches);
  result.graph_nodes = Read(c.graph_nodes);
  result.queries = Read(c.queries);
  return result;
}

std::int64_t LiveBytes(int device) { return CountLiveBytes(device); }

}  // namespace gaccd::standin
