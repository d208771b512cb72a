#include "collectives/bootstrap/gpus.h"

#include <cuda_runtime_api.h>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

std::string VersionText(int code) { return StrCat(code / 1000, ".", code % 1000 / 10); }

// As printed by nvidia-smi: GPU-8a1b2c3d-4e5f-...
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    text += Format("%s%02x", group ? "-" : "", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

std::string PciText(const cudaDeviceProp& properties) {
  return Format("%04x:%02x:%02x.0", static_cast<unsigned>(properties.pciDomainID),
                static_cast<unsigned>(properties.pciBusID),
                static_cast<unsigned>(properties.pciDeviceID));
}

Status NoGpu(cudaError_t error) {
  (void)cudaGetLastError();  // clear the error: it is reported here
  int driver = 0;
  int runtime = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    return {ErrorKind::kUnavailable, "no GPU: the NVIDIA driver is not installed or not loaded"};
  }
  if (error == cudaErrorInsufficientDriver) {
    return {ErrorKind::kUnavailable,
            StrCat("no GPU can be used: the driver offers CUDA ", VersionText(driver),
                   ", gaccd needs ", VersionText(runtime), "; update the driver")};
  }
  return CudaStatus(error, "no GPU can be used");
}

}  // namespace

Result<std::vector<GpuFacts>> FindGpus() {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return NoGpu(error);
  }
  if (count == 0) {
    return Status(ErrorKind::kUnavailable,
                  "no GPU is visible to this process; see CUDA_VISIBLE_DEVICES");
  }
  std::vector<GpuFacts> gpus;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, device),
                                     StrCat("cudaGetDeviceProperties(", device, ")")));
    GpuFacts facts;
    facts.device = device;
    facts.name = properties.name;
    facts.uuid = UuidText(properties.uuid);
    facts.pci = PciText(properties);
    facts.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    facts.compute_capability = properties.major * 10 + properties.minor;
    gpus.push_back(std::move(facts));
  }
  return gpus;
}

}  // namespace gaccd
