#include "tests/gpu/gpu_test.h"
#include "tests/standin/cublaslt_standin.h"

namespace gaccd {
const CublasLtApi* CublasLtOfTest() { return &standin::StandInCublasLt(); }
}  // namespace gaccd
