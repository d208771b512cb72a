// Implementation of the NCCL communicator: device buffers use NCCL; host buffers and everything
// that needs agreement use the communicator it was made over.
//
//   operation        device buffers
//   all-reduce       ncclAllReduce with ncclSum, in pieces if it is very large; several: a group
//   all-gather       equal counts: ncclAllGather; ragged: a group of ncclBroadcast, one per rank
//   reduce-scatter   equal counts: ncclReduceScatter; ragged: a group of ncclReduce, one per rank
//   broadcast        ncclBroadcast
//   messages         ncclSend, ncclRecv
#pragma once

#include <nccl.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/comm/communicator.h"
#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/nccl_hello.h"
#include "collectives/comm/nccl_watch.h"

namespace gaccd {

// Device memory from NCCL's allocator, which NCCL can map on other GPUs, and its registration, with
// which NCCL sums without copies if the hardware can.

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

class NcclCommunicator final : public Communicator {
 public:
  // `watch` owns the NCCL communicator, ready on all ranks of `over`. `owned` may be null: then
  // `over` must outlive the result.
  NcclCommunicator(Communicator* over, std::unique_ptr<Communicator> owned,
                   const NcclOptions& options, std::unique_ptr<NcclWatch> watch);
  ~NcclCommunicator() override;

  [[nodiscard]] std::string_view name() const override { return "nccl"; }
  [[nodiscard]] int rank() const override { return over_->rank(); }
  [[nodiscard]] int size() const override { return over_->size(); }
  [[nodiscard]] const Topology& topology() const override { return over_->topology(); }
  [[nodiscard]] MemoryKind memory() const override { return MemoryKind::kCuda; }

  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override;
  // Also checks the interrupt of host waits: kernels that spin for the lost rank end then.
  Status Poll() override;
  [[nodiscard]] std::optional<CommFailure> failure() const override;
  // Includes the communicators that were split from this one.
  void CancelPending(const Status& error) override;
  Status FlushSends() override { return over_->FlushSends(); }
  void SetReader(StreamHandle reader) override { reader_ = reader; }
  // NCCL connects two ranks at the first message of each direction, while both are in the call.
  Status ConnectMessages() override;
  Status Barrier() override;
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override;
  void Abort(int exit_code) noexcept override;

 private:
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override;
  Status DoAllReduceSums(std::span<const MutableBuffer> buffers, StreamHandle stream) override;
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override;
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle stream) override;
  Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) override;
  Status DoSend(ConstBuffer message, int to, StreamHandle stream) override;
  Status DoReceive(MutableBuffer message, int from, StreamHandle stream) override;
  [[nodiscard]] Status FirstFailure() const override { return watch_->failure(); }

  ncclResult_t SumPieces(const ConstBuffer& in, const MutableBuffer& out, ncclComm_t comm,
                         cudaStream_t stream) const;
  ncclResult_t BroadcastPieces(const void* in, void* out, std::size_t count, DType dtype, int root,
                               ncclComm_t comm, cudaStream_t stream) const;
  ncclResult_t ReducePieces(const void* in, void* out, std::size_t count, DType dtype, int root,
                            ncclComm_t comm, cudaStream_t stream) const;
  Status AgreeOn(const Status& status);
  [[nodiscard]] Status FindPartFailure() const;

  // A communicator that was split from this one, and its ranks as numbered here.
  struct SplitPart {
    std::weak_ptr<NcclWatch> watch;
    std::vector<int> ranks;
  };

  const NcclOptions options_;  // api is not null
  Communicator* const over_;
  const std::unique_ptr<Communicator> owned_;
  const std::shared_ptr<NcclWatch> watch_;
  StreamHandle reader_;  // if set
  std::vector<SplitPart> parts_;
  const std::shared_ptr<NcclWindows> windows_;
};

// The settings of all NCCL communicators (nccl_init.cc). name: shown in NCCL's log.
[[nodiscard]] ncclConfig_t NcclConfig(const char* name);

// MakeNccl() over a communicator that the result owns, unless `owned` is null.
Result<std::unique_ptr<Communicator>> MakeNcclOver(Communicator* over,
                                                   std::unique_ptr<Communicator> owned,
                                                   const NcclOptions& asked);

}  // namespace gaccd
