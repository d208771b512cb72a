#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {

const CublasLtApi* CublasLtOfBench() { return nullptr; }

}  // namespace gaccd
