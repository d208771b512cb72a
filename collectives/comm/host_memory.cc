#include "collectives/comm/host_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "collectives/base/process_memory.h"

namespace gaccd {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

class HostMemory final : public CommMemory {
 public:
  HostMemory(void* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  ~HostMemory() override { ::munmap(data_, std::max<std::size_t>(bytes_, 1)); }

  [[nodiscard]] void* data() const override { return data_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace

Result<std::unique_ptr<CommMemory>> AllocateHostMemory(std::size_t bytes) {
  const std::size_t mapped = std::max<std::size_t>(bytes, 1);  // mmap refuses zero
  void* data = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return NoMemory("exchanged buffers", bytes);
  }
  // Optional: reduces TLB misses.
  if (mapped >= kHugePage) (void)::madvise(data, mapped, MADV_HUGEPAGE);
  return std::unique_ptr<CommMemory>(std::make_unique<HostMemory>(data, bytes));
}

}  // namespace gaccd
