// What the tests of a GPU's NCCL take where GPU and NCCL are stand-ins on the CPU.
#include "tests/gpu/gpu_test.h"
#include "tests/standin/nccl/nccl_standin.h"

namespace gaccd {

const NcclApi* NcclOfTest() { return StandInNccl(); }

}  // namespace gaccd
