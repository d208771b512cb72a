// A communicator that sums floats as a sharded update does on several nodes: in each node in rank
// order, then over the nodes. So an unsharded run over it has the bits of a sharded one.
#pragma once

#include <memory>
#include <utility>

#include "collectives/comm/forwarding_communicator.h"

namespace gaccd::tests {

class TwoLevelCommunicator final : public ForwardingCommunicator {
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

 private:
  TwoLevelCommunicator(Communicator& inner, std::unique_ptr<Communicator> within,
                       std::unique_ptr<Communicator> between)
      : ForwardingCommunicator(inner), within_(std::move(within)), between_(std::move(between)) {}

  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle stream) override {
    if (in.dtype != DType::kF32) return inner().AllReduceSum(in, out, stream);
    GACCD_RETURN_IF_ERROR(within_->AllReduceSum(in, out, stream));
    if (between_) GACCD_RETURN_IF_ERROR(between_->AllReduceSum(out, out, stream));
    return within_->Broadcast(out, 0, stream);
  }

  const std::unique_ptr<Communicator> within_;
  const std::unique_ptr<Communicator> between_;  // null: not the first rank of its node
};

}  // namespace gaccd::tests
