// What oneDNN offers on this machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace gaccd {

// The versions of oneDNN at compile time and at run time.

// "2.6.3 (compiled with 2.6.3)": the loaded version.
[[nodiscard]] std::string OneDnnVersion();

// The same as numbers, for comparison.
struct OneDnnNumbers {
  std::array<int, 3> compiled{};
  std::array<int, 3> loaded{};
};
[[nodiscard]] OneDnnNumbers OneDnnVersionNumbers();

// Support of this CPU for bf16 matrix products.
enum class CpuBf16 : std::uint8_t {
  kNone,      // oneDNN has no bf16 products for it
  kEmulated,  // by oneDNN with AVX-512, slower than f32 products
  kAvx512Bf16,
  kAmx,
};

// What oneDNN uses on this CPU; the environment variable ONEDNN_MAX_CPU_ISA limits it.
[[nodiscard]] CpuBf16 DetectCpuBf16();

// Text for users: "AVX-512 without AVX512_BF16", "AMX".
[[nodiscard]] std::string_view Name(CpuBf16 bf16);

}  // namespace gaccd
