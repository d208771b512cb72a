#include "daemon/device/cuda/dnn_library.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {

const CublasLtApi* CublasLtOfBench() { return nullptr; }
Result<DnnFactory> DnnOfBench() { return FindCudnn(); }

}  // namespace gaccd
