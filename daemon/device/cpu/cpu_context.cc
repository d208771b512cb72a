#include "daemon/device/cpu/cpu_context.h"

#include "collectives/base/strings.h"
#include "daemon/device/cpu/onednn_version.h"
#include "daemon/device/cpu/packed_weights.h"

// From libgomp, on whose threads oneDNN runs. clang's omp.h would add a second runtime.
extern "C" void omp_set_num_threads(int threads);

namespace gaccd {

CpuContext::CpuContext()
    : engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      packed_weights_(std::make_unique<PackedWeights>(*this)) {}

CpuContext::~CpuContext() = default;

Result<std::unique_ptr<CpuContext>> CpuContext::Create() {
  omp_set_num_threads(1);
  try {
    return std::unique_ptr<CpuContext>(new CpuContext());
  } catch (const dnnl::error& error) {
    return Status(ErrorKind::kInternal, StrCat("oneDNN engine: ", error.what()));
  }
}

OneDnnNumbers OneDnnVersionNumbers() {
  const dnnl_version_t* version = dnnl_version();
  return {{DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH},
          {version->major, version->minor, version->patch}};
}

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return StrCat(version->major, ".", version->minor, ".", version->patch, " (compiled with ",
                DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH, ")");
}

}  // namespace gaccd
