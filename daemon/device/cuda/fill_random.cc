#include "daemon/device/cuda/fill_random.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace gaccd {
namespace {

// Truncates to 16 bits: the upper half is a bf16; the exponent of an fp16 is smaller by 112, but
// not negative.
std::uint16_t Truncated(float value, DType dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::kBF16) return static_cast<std::uint16_t>(bits >> 16U);
  constexpr std::uint32_t kOffset = 112U << 23U;
  const std::uint32_t size = std::max(bits & 0x7fffffffU, kOffset) - kOffset;
  return static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | size >> 13U);
}

}  // namespace

Status FillRandom(const DeviceBuffer& buffer, DType dtype) {
  constexpr std::size_t kPattern = std::size_t{1} << 20;  // generated on the host, then repeated
  const std::size_t pattern = std::min(kPattern, buffer.bytes());
  std::vector<std::byte> host(pattern);
  std::mt19937 random(1);
  for (std::size_t at = 0; at + 4 <= pattern; at += SizeOf(dtype)) {
    const float value = static_cast<float>(random()) * 0x1p-31F - 1;
    if (dtype == DType::kF32) {
      std::memcpy(&host[at], &value, sizeof value);
    } else {
      const std::uint16_t half = Truncated(value, dtype);
      std::memcpy(&host[at], &half, sizeof half);
    }
  }
  auto* to = buffer.as<std::byte>();
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(to, host.data(), pattern, cudaMemcpyHostToDevice), "random data"));
  for (std::size_t done = pattern; done < buffer.bytes();) {
    const std::size_t piece = std::min(done, buffer.bytes() - done);
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(to + done, to, piece, cudaMemcpyDeviceToDevice), "random data"));
    done += piece;
  }
  return CudaStatus(cudaDeviceSynchronize(), "random data");
}

}  // namespace gaccd
