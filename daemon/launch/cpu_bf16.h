// Whether all ranks can compute products in bf16 on their CPUs.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/device/cpu/bf16_of_cpu.h"

namespace gaccd {

// Collective, the same on all ranks: for people, what computes them, "products in bf16
// by AVX512_BF16". `mine`: Bf16OfCpu(). kConfig, naming a rank and what it has, when a CPU has
// neither AVX512_BF16 nor AMX; with allow_emulation only when oneDNN cannot emulate them either.
Result<std::string> CheckBf16OnCpus(Communicator& over, CpuBf16 mine, bool allow_emulation);

}  // namespace gaccd
