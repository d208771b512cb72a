// A communicator that sums floats as a sharded update does on several nodes: in each node in rank
// order, then over the nodes. So an unsharded run over it has the bits of a sharded one.
#pragma once

#include <memory>
#include <utility>

#include "collectives/comm/communicator.h"

namespace gaccd::tests {

class TwoLevelCommunicator final : public Communicator {
 public:
  // Collective. `inner` outlives this.
  static Result<std::unique_ptr<TwoLevelCommunicator>> Make(Communicator& inner) {
    const Topology& topology = inner.topology();
    const int node = topology.node_of[static_cast<std::size_t>(inner.rank())];
    GACCD_ASSIGN_OR_RETURN(auto within, inner.Split(node, topology.local_rank));
    GACCD_ASSIGN_OR_RETURN(auto between, inner.Split(topology.local_rank == 0 ? 0 : -1, node));
    return std::unique_ptr<TwoLevelCommunicator>(
        new TwoLevelCommunicator(inner, std::move(within), std::move(between)));
  }

  [[nodiscard]] std::string_view name() const override { return inner_.name(); }
  [[nodiscard]] int rank() const override { return inner_.rank(); }
  [[nodiscard]] int size() const override { return inner_.size(); }
  [[nodiscard]] const Topology& topology() const override { return inner_.topology(); }
  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override {
    return inner_.Allocate(bytes);
  }
  Status Barrier() override { return inner_.Barrier(); }
  Result<std::unique_ptr<Communicator>> Split(int color, int key) override {
    return inner_.Split(color, key);
  }
  void Abort(int exit_code) noexcept override { inner_.Abort(exit_code); }

 private:
  TwoLevelCommunicator(Communicator& inner, std::unique_ptr<Communicator> within,
                       std::unique_ptr<Communicator> between)
      : inner_(inner), within_(std::move(within)), between_(std::move(between)) {}

  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    if (in.dtype != DType::kF32) return inner_.AllReduceSum(in, out, stream);
    GACCD_RETURN_IF_ERROR(within_->AllReduceSum(in, out, stream));
    if (between_) GACCD_RETURN_IF_ERROR(between_->AllReduceSum(out, out, stream));
    return within_->Broadcast(out, 0, stream);
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

  Communicator& inner_;
  const std::unique_ptr<Communicator> within_;
  const std::unique_ptr<Communicator> between_;  // null: not the first rank of its node
};

}  // namespace gaccd::tests
