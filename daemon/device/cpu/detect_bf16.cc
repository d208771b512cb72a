#include "daemon/device/cpu/detect_bf16.h"

#include <dnnl.hpp>

namespace gaccd {
namespace {

// dnnl_cpu_isa_t is a set: every value has the bits of those it includes.
bool Has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

CpuBf16 DetectCpuBf16() {
  if (Has(dnnl::cpu_isa::avx512_core_amx)) return CpuBf16::kAmx;
  if (Has(dnnl::cpu_isa::avx512_core_bf16)) return CpuBf16::kAvx512Bf16;
  return Has(dnnl::cpu_isa::avx512_core) ? CpuBf16::kEmulated : CpuBf16::kNone;
}

std::string_view Name(CpuBf16 bf16) {
  switch (bf16) {
    case CpuBf16::kNone:
      return "no AVX-512";
    case CpuBf16::kEmulated:
      return "AVX-512 without AVX512_BF16";
    case CpuBf16::kAvx512Bf16:
      return "AVX512_BF16";
    case CpuBf16::kAmx:
      return "AMX";
  }
  return "";
}

}  // namespace gaccd
