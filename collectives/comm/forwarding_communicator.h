// ForwardingCommunicator: forwards every operation to another communicator, AllReduceSums() as one
// DoAllReduceSum() per buffer. Base class for selftests and tests that change one operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "collectives/comm/communicator.h"

namespace gaccd {

class ForwardingCommunicator : public Communicator {
 public:
  // `inner` must outlive this.
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] const Topology& topology() const override { return inner_.topology(); }
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override {
    return inner_.Allocate(bytes);
  }
  [[nodiscard]] MemoryKind memory() const override { return inner_.memory(); }
  Status Poll() override { return inner_.Poll(); }
  [[nodiscard]] std::optional<CommFailure> failure() const override { return inner_.failure(); }
  Status FlushSends() override { return inner_.FlushSends(); }
  void SetReader(StreamHandle reader) override { inner_.SetReader(reader); }
  Status ConnectMessages() override { return inner_.ConnectMessages(); }
  Status Barrier() override { return inner_.Barrier(); }
  // The result is split from the inner communicator and not forwarding.
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override {
    return inner_.Split(color, key);
  }
  void CancelPending(const Status& error) override { inner_.CancelPending(error); }
  void Abort(int exit_code) noexcept override { inner_.Abort(exit_code); }

 protected:
  [[nodiscard]] Communicator& inner() { return inner_; }

 private:
  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    return inner_.AllReduceSum(in, out, stream);
  }
  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle stream) override {
    return inner_.AllGather(in, counts, out, stream);
  }
  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle stream) override {
    return inner_.ReduceScatter(in, counts, out, stream);
  }
  Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle stream) override {
    return inner_.Broadcast(buffer, root, stream);
  }
  Status DoSend(ConstBuffer message, int to, StreamHandle stream) override {
    return inner_.Send(message, to, stream);
  }
  Status DoReceive(MutableBuffer message, int from, StreamHandle stream) override {
    return inner_.Receive(message, from, stream);
  }

  Communicator& inner_;
};

}  // namespace gaccd
