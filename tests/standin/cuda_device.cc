// Entry points of the CUDA runtime: devices, versions, errors.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "collectives/base/strings.h"
#include "tests/standin/allocations.h"
#include "tests/standin/fatal.h"
#include "tests/standin/faults.h"
#include "tests/standin/runtime.h"

namespace gaccd::standin {
namespace {

bool Exists(int device) { return device >= 0 && device < Machine().devices; }

constexpr int kDriverVersion = CUDART_VERSION;
constexpr int kMultiprocessors = 4;
constexpr int kFirstBus = 0x19;

struct ErrorWords {
  cudaError_t error;
  const char* name;
  const char* words;
};

constexpr ErrorWords kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorInvalidPitchValue, "cudaErrorInvalidPitchValue", "invalid pitch argument"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout", "the launch timed out and was terminated"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorAssert, "cudaErrorAssert", "device-side assert triggered"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureMerge, "cudaErrorStreamCaptureMerge",
     "operation would result in a merge of separate capture sequences"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorWords& FindErrorWords(cudaError_t error) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                   [&](const ErrorWords& e) { return e.error == error; });
  if (found == std::end(kErrors)) {
    Fatal(StrCat("error ", static_cast<int>(error), " has no words: add them to cuda_device.cc"));
  }
  return *found;
}

int AttributeValue(cudaDeviceAttr attribute, int device) {
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMultiProcessorCount:
      return kMultiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrUnifiedAddressing:
      return 1;
    case cudaDevAttrComputeMode:
      return cudaComputeModeDefault;
    case cudaDevAttrPciBusId:
      return kFirstBus + device;
    case cudaDevAttrPciDeviceId:
      return 0;
    case cudaDevAttrPciDomainId:
      return 0;
    case cudaDevAttrL2CacheSize:
      return 50 << 20;
    default:
      Fatal(StrCat("cudaDeviceGetAttribute(", static_cast<int>(attribute), ") is unknown"));
  }
}

}  // namespace
}  // namespace gaccd::standin

using namespace gaccd::standin;  // NOLINT: the definitions below are the file's purpose

const char* cudaGetErrorName(cudaError_t error) { return FindErrorWords(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return FindErrorWords(error).words; }
cudaError_t cudaGetLastError() { return TakeLastError(/*keep=*/false); }
cudaError_t cudaPeekAtLastError() { return TakeLastError(/*keep=*/true); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  *count = Machine().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  *device = CurrentDevice();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (Machine().driver == Driver::kPresent && !Exists(device)) return Leave(cudaErrorInvalidDevice);
  const int before = CurrentDevice();
  CurrentDevice() = Exists(device) ? device : before;  // its own errors count from here on
  const cudaError_t error = Enter(__func__);
  return error;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (!Exists(device)) return Leave(cudaErrorInvalidDevice);
  *properties = cudaDeviceProp{};
  std::snprintf(properties->name, sizeof(properties->name), "stand-in GPU %d", device);
  const std::string uuid = gaccd::StrCat("gaccd-standin-", static_cast<char>('A' + device / 26),
                                         static_cast<char>('a' + device % 26));
  std::memcpy(properties->uuid.bytes, uuid.data(), sizeof(properties->uuid.bytes));
  properties->totalGlobalMem = Machine().memory_bytes;
  properties->sharedMemPerBlock = std::size_t{48} << 10;
  properties->regsPerBlock = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->major = 9;
  properties->multiProcessorCount = kMultiprocessors;
  properties->pciBusID = kFirstBus + device;
  properties->asyncEngineCount = 3;
  properties->unifiedAddressing = 1;
  properties->concurrentKernels = 1;
  properties->l2CacheSize = 50 << 20;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->streamPrioritiesSupported = 1;
  properties->memoryBusWidth = 5120;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (!Exists(device)) return Leave(cudaErrorInvalidDevice);
  *value = AttributeValue(attribute, device);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (!Exists(device)) return Leave(cudaErrorInvalidDevice);
  if (length < 13) return Leave(cudaErrorInvalidValue);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02X:00.0",
                static_cast<unsigned>(kFirstBus + device));
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  {
    const std::lock_guard lock(Lock());
    if (const cudaError_t error = CheckUnsafe(); error != cudaSuccess) return Leave(error);
  }
  return Leave(SynchronizeDevice(CurrentDevice()));
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Machine().driver == Driver::kMissing ? 0 : kDriverVersion;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  *total = Machine().memory_bytes;
  *free = *total - static_cast<std::size_t>(CountLiveBytes(CurrentDevice()));
  return cudaSuccess;
}
