// Whether this CPU multiplies bf16.
#pragma once

#include <cstdint>
#include <string_view>

namespace gaccd {

enum class CpuBf16 : std::uint8_t {
  kNone,      // oneDNN has no products of bf16 for it
  kEmulated,  // by oneDNN with AVX-512, slower than products of f32
  kAvx512Bf16,
  kAmx,
};

// What oneDNN uses of this CPU: the environment variable ONEDNN_MAX_CPU_ISA limits it.
[[nodiscard]] CpuBf16 Bf16OfCpu();

// What the CPU has, for people: "AVX-512 without AVX512_BF16", "AMX".
[[nodiscard]] std::string_view Name(CpuBf16 bf16);

}  // namespace gaccd
