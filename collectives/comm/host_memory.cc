#include "collectives/comm/host_memory.h"

#include <algorithm>
#include <utility>

#include "collectives/base/memory.h"

namespace gaccd {
namespace {

class HostMemory final : public CommMemory {
 public:
  HostMemory(HostBuffer buffer, std::size_t bytes) : buffer_(std::move(buffer)), bytes_(bytes) {}

  [[nodiscard]] void* data() const override { return buffer_.data(); }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  HostBuffer buffer_;
  std::size_t bytes_;
};

}  // namespace

Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes) {
  // Not empty: data() is an address, also of 0 bytes.
  GACCD_ASSIGN_OR_RETURN(
      auto buffer, HostBuffer::Allocate(std::max<std::size_t>(bytes, 1), "exchanged buffers"));
  return std::unique_ptr<CommMemory>(std::make_unique<HostMemory>(std::move(buffer), bytes));
}

}  // namespace gaccd
