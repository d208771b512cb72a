// Ranks as threads, each with an engine: on CPUs, or on what the program tests.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/comm/forwarding_communicator.h"
#include "tests/support/engine_runs.h"

namespace gaccd::tests {

using Nodes = std::vector<int>;  // by rank its node; empty: one node

struct EngineRanks {
  EngineChoice choice = {};  // the device and its number are set by who runs it
  std::chrono::milliseconds bound{20'000};
  bool one_gpu = false;  // for all ranks
  bool windows = false;
  Nodes node_of = {};
  bool two_levels = false;  // floats are summed as in a sharded update
  // Options of a rank's run.
  std::function<EngineRunOptions(int rank)> options = nullptr;
};

// The case on one of these ranks. Collective.
Result<EngineRun> RunRank(Communicator& engine_comm, const EngineCase& test,
                          const EngineChoice& choice, const EngineRanks& ranks);

// The case on CPUs, by rank.
std::vector<Result<EngineRun>> RunCpuRanks(const EngineCase& test, const EngineRanks& ranks = {});

// A communicator that sums floats as a sharded update does on several nodes: in each node in rank
// order, then over the nodes. So an unsharded run over it has the bits of a sharded one.
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
