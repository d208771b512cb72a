#include "daemon/device/cpu/onednn.h"

#include <dnnl.hpp>

#include "collectives/base/strings.h"

namespace gaccd {

namespace {

// dnnl_cpu_isa_t is a set: every value has the bits of those it includes.
bool Has(dnnl::cpu_isa wanted) {
  const auto bits = static_cast<unsigned>(wanted);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

}  // namespace

OneDnnNumbers OneDnnVersionNumbers() {
  const dnnl_version_t* version = dnnl_version();
  return {{DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH},
          {version->major, version->minor, version->patch}};
}

std::string OneDnnVersion() {
  const dnnl_version_t* version = dnnl_version();
  return StrCat(version->major, ".", version->minor, ".", version->patch, " (compiled with ",
                DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH, ")");
}

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
