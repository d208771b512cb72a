// DeviceCopies: takes host buffers and runs every operation on copies of them in device memory, so
// that the conformance suite, and any other code with host buffers, also tests communicators of
// GPUs. What follows the buffers on the device must stay as it was, and so must inputs: else
// the operation fails as kInternal. Every operation waits for its stream.
//
// Memory of Allocate() is device memory with a copy on the host, which is what data() gives; an
// operation on it, or on a part of it, runs in that device memory.
#pragma once

#include <list>
#include <memory>

#include "collectives/base/cuda.h"
#include "collectives/comm/communicator.h"

namespace gaccd::tests {

class DeviceCopies final : public Communicator {
 public:
  // `inner` must outlive it. REQUIRES: inner.memory() is kCuda.
  static Result<std::unique_ptr<Communicator>> Make(Communicator& inner);
  // Waits for its stream: after an error a collective may still be leaving it.
  ~DeviceCopies() override { (void)cudaStreamSynchronize(stream_.get()); }

  [[nodiscard]] std::string_view name() const override { return inner_->name(); }
  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  [[nodiscard]] const Topology& topology() const override { return inner_->topology(); }
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override;
  Status Poll() override { return inner_->Poll(); }
  Status Barrier() override { return inner_->Barrier(); }
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override;
  void Abort(int exit_code) noexcept override { inner_->Abort(exit_code); }

 private:
  // Allocated memory that lives, on both sides.
  struct Mirror {
    std::byte* host = nullptr;
    std::byte* device = nullptr;
    std::size_t bytes = 0;
  };
  using Mirrors = std::list<Mirror>;
  class Memory;

  // Device memory for the buffers of one operation.
  struct Slot {
    DeviceBuffer buffer;
    std::byte* device = nullptr;
    bool guarded = false;
  };

  DeviceCopies(Communicator* inner, std::unique_ptr<Communicator> owned, CudaStream stream)
      : inner_(inner), owned_(std::move(owned)), stream_(std::move(stream)) {}
  static Result<std::unique_ptr<Communicator>> Wrap(Communicator* inner,
                                                    std::unique_ptr<Communicator> owned);

  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override;
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override;
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle stream) override;
  Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) override;

  Status CopyIn(const ConstBuffer& host, Slot* slot);
  Status CheckInput(const ConstBuffer& host, const Slot& slot);
  Status CopyOut(const MutableBuffer& host, const Slot& slot);
  Status CheckGuard(const Slot& slot, std::size_t bytes);
  Status WaitForStream();
  // operation(in, out) on the device.
  template <typename Operation>
  Status Run(const ConstBuffer& in, const MutableBuffer& out, const Operation& operation);

  Communicator* inner_;
  std::unique_ptr<Communicator> owned_;
  CudaStream stream_;
  Slot in_;
  Slot out_;
  std::shared_ptr<Mirrors> mirrors_ = std::make_shared<Mirrors>();
};

}  // namespace gaccd::tests
