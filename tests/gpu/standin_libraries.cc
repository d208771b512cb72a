// What the same tests and benchmarks take where the GPU is a stand-in on the CPU.
#include "tests/gpu/gpu_test.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/sdpa_standin.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {

const CublasLtApi* CublasLtOfTest() { return &standin::StandInCublasLt(); }
Result<SdpaOpener> SdpaOfTest() { return SdpaOpener{&standin::OpenSdpa}; }
const CublasLtApi* CublasLtOfBench() { return &standin::StandInCublasLt(); }
Result<SdpaOpener> SdpaOfBench() { return SdpaOpener{&standin::OpenSdpa}; }

}  // namespace gaccd
