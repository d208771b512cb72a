// Device memory from NCCL's allocator, which NCCL can map on other GPUs, and its registration, with
// which NCCL sums without copies if the hardware can.
#pragma once

#include <nccl.h>

#include <memory>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/nccl_watch.h"

namespace gaccd {

// The windows of one communicator. They must be deregistered before it is finalised, but the memory
// may outlive it: whichever is released first deregisters the window.
class NcclWindows {
 public:
  explicit NcclWindows(const NcclApi* api) : api_(api) {}

  // Whether NCCL accepts this memory of this rank.
  static bool CanRegister(const void* data, std::size_t bytes);
  // Collective; all ranks must have memory that NCCL accepts. flags: NCCL_WIN_... Returns false if
  // NCCL has no window for this rank's.
  Result<bool> Register(NcclWatch& watch, void* data, std::size_t bytes, int flags,
                        ncclWindow_t* window);
  // Returns whether the memory may be freed: false while the abort of a failed communicator, which
  // removes the windows, is still running.
  [[nodiscard]] bool Deregister(ncclWindow_t window);
  // Deregisters all windows. REQUIRES: no collective uses their memory.
  void DeregisterAll();

 private:
  struct Entry {
    NcclWatch* watch;
    ncclWindow_t window;
  };
  const NcclApi* api_;
  [[nodiscard]] bool Close(const Entry& entry) const;

  std::vector<Entry> open_;
  std::vector<ncclWindow_t> kept_;  // of a communicator whose abort did not end
};

class NcclMemory final : public CommMemory {
 public:
  // Zeroed. kOs, with the requested and the free bytes, if it does not fit.
  static Result<std::unique_ptr<NcclMemory>> Allocate(const NcclApi& api, std::size_t bytes);
  ~NcclMemory() override;

  [[nodiscard]] void* data() const override { return data_; }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

  // Deregisters `window` before the memory is freed. If that is not possible, the memory is leaked.
  void Own(std::shared_ptr<NcclWindows> windows, ncclWindow_t window);
  // Deregisters it now.
  void CloseWindow();

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
