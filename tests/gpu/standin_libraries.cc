// What the same tests and benchmarks take where the GPU is a stand-in on the CPU.
#include "tests/gpu/gpu_test.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/sdpa_standin.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {

const CublasLtApi* CublasLtOfTest() { return &standin::StandInCublasLt(); }
Result<DnnFactory> DnnOfTest() { return DnnFactory{&standin::OpenDnn}; }
const CublasLtApi* CublasLtOfBench() { return &standin::StandInCublasLt(); }
Result<DnnFactory> DnnOfBench() { return DnnFactory{&standin::OpenDnn}; }

}  // namespace gaccd
