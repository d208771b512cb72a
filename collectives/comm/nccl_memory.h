// Device memory from NCCL's allocator, which NCCL can map on other GPUs, and its registration, with
// which NCCL sums without copies where the hardware can.
#pragma once

#include <nccl.h>

#include <memory>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/nccl_watch.h"

namespace gaccd {

// The windows of one communicator. They must be gone before it is finalised, but the memory may
// outlive it: the first to release them unregisters them.
class NcclWindows {
 public:
  explicit NcclWindows(const NcclApi* api) : api_(api) {}

  // Collective. flags: NCCL_WIN_... False: NCCL offers none for this memory.
  Result<bool> Register(NcclWatch& watch, void* data, std::size_t bytes, int flags,
                        ncclWindow_t* window);
  // Whether the memory may be freed then: not while the abort of a failed communicator, which takes
  // the windows off, is not over.
  [[nodiscard]] bool Deregister(ncclWindow_t window);
  // No window afterwards; REQUIRES: no collective uses their memory.
  void DeregisterAll();

 private:
  struct Entry {
    NcclWatch* watch;
    ncclWindow_t window;
  };
  const NcclApi* api_;
  [[nodiscard]] bool Close(const Entry& entry) const;

  std::vector<Entry> open_;
  std::vector<ncclWindow_t> kept_;  // by a communicator whose abort did not end
};

class NcclMemory final : public CommMemory {
 public:
  // Zeroed. kOs, with the wanted and the free bytes, when it does not fit.
  static Result<std::unique_ptr<NcclMemory>> Allocate(const NcclApi& api, std::size_t bytes);
  ~NcclMemory() override;

  [[nodiscard]] void* data() const override { return data_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

  // `window` is deregistered before the memory is freed. Where it cannot be, the memory is left to
  // the end of the process.
  void Own(std::shared_ptr<NcclWindows> windows, ncclWindow_t window);

 private:
  explicit NcclMemory(const NcclApi* api) : api_(api) {}
  Status SetZero();

  const NcclApi* api_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<NcclWindows> windows_;
  ncclWindow_t window_ = nullptr;
};

}  // namespace gaccd
