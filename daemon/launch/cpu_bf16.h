// Checks whether all ranks can compute bf16 products on their CPUs.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/device/cpu/detect_bf16.h"

namespace gaccd {

// Collective, the same result on all ranks: text for users with the instructions used, "products in
// bf16 by AVX512_BF16". mine: DetectCpuBf16(). kConfig, with a rank and its capability, if a CPU
// has neither AVX512_BF16 nor AMX; with allow_emulation only if oneDNN cannot emulate them either.
Result<std::string> CheckBf16OnCpus(Communicator& over, CpuBf16 mine, bool allow_emulation);

}  // namespace gaccd
