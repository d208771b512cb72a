#include "daemon/device/cpu/cpu_context.h"

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/device/cpu/packed_weights.h"

// From libgomp, on whose threads oneDNN runs. clang's omp.h would add a second runtime.
extern "C" void omp_set_num_threads(int threads);

namespace gaccd {

CpuContext::CpuContext(bool f64_sums)
    : engine_(dnnl::engine::kind::cpu, 0),
      stream_(engine_),
      packed_weights_(std::make_unique<PackedWeights>(*this)),
      f64_sums_(f64_sums) {}

CpuContext::~CpuContext() = default;

Result<std::unique_ptr<CpuContext>> CpuContext::Create(bool f64_sums) {
  omp_set_num_threads(1);
  try {
    return std::unique_ptr<CpuContext>(new CpuContext(f64_sums));
  } catch (const dnnl::error& error) {
    return Status(ErrorKind::kInternal, StrCat("oneDNN engine: ", error.what()));
  }
}

Status DnnlStatus(dnnl_status_t status, std::string_view what) {
  if (status == dnnl_success) return Status::Ok();
  if (status == dnnl_out_of_memory) return NoMemory(StrCat("the workspace of a ", what), 0);
  return {ErrorKind::kInternal, StrCat(what, ": dnnl_status_t ", static_cast<int>(status))};
}

}  // namespace gaccd
