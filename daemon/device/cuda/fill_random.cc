#include "daemon/device/cuda/fill_random.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace gaccd {

Status FillRandom(const DeviceBuffer& buffer, DType dtype) {
  const bool bf16 = dtype == DType::kBF16;
  constexpr std::size_t kPattern = std::size_t{16} << 20;
  const std::size_t pattern = std::min(kPattern, buffer.bytes());
  std::vector<std::byte> host(pattern);
  std::mt19937 random(1);
  for (std::size_t at = 0; at + 4 <= pattern; at += bf16 ? 2 : 4) {
    const float value = static_cast<float>(random()) * 0x1p-31F - 1;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    if (bf16) {
      const auto half = static_cast<std::uint16_t>(bits >> 16U);
      std::memcpy(&host[at], &half, sizeof half);
    } else {
      std::memcpy(&host[at], &bits, sizeof bits);
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
