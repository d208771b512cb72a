#include "collectives/comm/threads.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/comm/checks.h"
#include "collectives/comm/sum.h"
#include "collectives/comm/thread_group.h"

namespace gaccd {
namespace {

std::size_t Index(int rank) { return static_cast<std::size_t>(rank); }

Topology MakeTopology(const ThreadGroup& group, int rank) {
  const ThreadWorld& world = group.world();
  Topology topology;
  // maps the nodes of the world seen so far to new numbers (the index)
  std::vector<int> number_of_node;
  for (const int member : group.world_ranks()) {
    const int node = world.node_of()[Index(member)];
    const auto seen = std::ranges::find(number_of_node, node);
    topology.hosts.push_back(world.hosts()[Index(member)]);
    topology.node_of.push_back(static_cast<int>(seen - number_of_node.begin()));
    if (seen == number_of_node.end()) number_of_node.push_back(node);
  }
  const int mine = topology.node_of[Index(rank)];
  topology.nodes = static_cast<int>(number_of_node.size());
  topology.local_size = static_cast<int>(std::ranges::count(topology.node_of, mine));
  topology.local_rank =
      static_cast<int>(std::count(topology.node_of.begin(), topology.node_of.begin() + rank, mine));
  return topology;
}

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadGroup> group, int rank)
      : group_(std::move(group)),
        rank_(rank),
        topology_(MakeTopology(*group_, rank)),
        inputs_(Index(group_->size())),
        outputs_(Index(group_->size())) {}

  [[nodiscard]] std::string_view name() const override { return "threads"; }
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_->size(); }
  [[nodiscard]] const Topology& topology() const override { return topology_; }

  Result<std::unique_ptr<CommMemory>> Allocate(std::size_t bytes) override {
    // Allocate first: a rank that fails must fail the others before they rely on it.
    auto memory = AllocateHostMemory(bytes);
    if (!memory.ok()) return Refuse(memory.status());
    GACCD_RETURN_IF_ERROR(Run({.operation = Operation::kAllocate, .agreed_count = bytes}, [] {}));
    return memory;
  }

  Status Barrier() override {
    return group_->BarrierAndCheck(rank_, {.operation = Operation::kBarrier});
  }

  Result<std::unique_ptr<Communicator>> Split(int color, int key) override;

  void Abort(int exit_code) noexcept override {
    const int me = group_->world_ranks()[Index(rank_)];
    const Status status(ErrorKind::kUnavailable,
                        StrCat("rank ", me, " has aborted with exit code ", exit_code));
    group_->world().Fail(status, status);
  }

 private:
  template <typename Work>
  Status Run(const ThreadCall& call, const Work& work) {
    GACCD_RETURN_IF_ERROR(group_->BarrierAndCheck(rank_, call));
    work();
    group_->Finish(rank_);
    return Status::Ok();
  }

  Status DoAllReduceSum(ConstBuffer in, MutableBuffer out, StreamHandle /*stream*/) override {
    const ThreadCall call{
        .operation = Operation::kAllReduce, .in = in, .out = out, .agreed_count = in.count};
    Status summed;
    GACCD_RETURN_IF_ERROR(Run(call, [&] {
      // No other rank reads this slice of any input, so it may be overwritten in place.
      const Slice slice = WorkerSlice(in.count, rank_, size());
      CollectPeers();
      summed = SumRange(in.dtype, inputs_, slice.first, outputs_, slice.first, slice.count);
    }));
    return summed;
  }

  Status DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                     StreamHandle /*stream*/) override {
    const ThreadCall call{.operation = Operation::kAllGather,
                          .in = in,
                          .out = out,
                          .agreed_count = out.count,
                          .counts = counts};
    return Run(call, [&] {
      auto* to = static_cast<std::byte*>(out.data);
      for (const ThreadCall& peer : group_->calls()) {
        const std::size_t bytes = peer.in.bytes();
        if (bytes > 0 && to != peer.in.data) std::memcpy(to, peer.in.data, bytes);
        to += bytes;
      }
    });
  }

  Status DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts, MutableBuffer out,
                         StreamHandle /*stream*/) override {
    const ThreadCall call{.operation = Operation::kReduceScatter,
                          .in = in,
                          .out = out,
                          .agreed_count = in.count,
                          .counts = counts};
    Status summed;
    GACCD_RETURN_IF_ERROR(Run(call, [&] {
      CollectPeers();
      const std::span<void* const> own(&outputs_[Index(rank_)], 1);
      summed = SumRange(in.dtype, inputs_, PartOffset(counts, rank_), own, 0, out.count);
    }));
    return summed;
  }

  Status DoBroadcast(MutableBuffer buffer, int root, StreamHandle /*stream*/) override {
    const ThreadCall call{.operation = Operation::kBroadcast,
                          .in = buffer,
                          .out = buffer,
                          .agreed_count = buffer.count,
                          .root = root};
    return Run(call, [&] {
      if (rank_ == root || buffer.count == 0) return;
      std::memcpy(buffer.data, group_->calls()[Index(root)].in.data, buffer.bytes());
    });
  }

  Status DoSend(ConstBuffer message, int to, StreamHandle /*stream*/) override {
    return group_->Post(rank_, to, message);
  }
  Status DoReceive(MutableBuffer message, int from, StreamHandle /*stream*/) override {
    return group_->ReceiveMessage(from, rank_, message);
  }

  Status Refuse(Status error) override {
    const int me = group_->world_ranks()[Index(rank_)];
    group_->world().Fail(
        {ErrorKind::kUnavailable, StrCat("rank ", me, " failed: ", error.message())},
        {error.kind(), StrCat("rank ", me, ": ", error.message())});
    return error;
  }

  void CollectPeers() {
    for (std::size_t r = 0; r < inputs_.size(); ++r) {
      inputs_[r] = group_->calls()[r].in.data;
      outputs_[r] = group_->calls()[r].out.data;
    }
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
  const Topology topology_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

// The ranks of this group with `color`, ordered by (key, rank).
std::vector<int> FindMembers(const ThreadGroup& group, int color) {
  std::vector<int> members;
  for (int r = 0; r < group.size(); ++r) {
    if (group.calls()[Index(r)].color == color) members.push_back(r);
  }
  std::ranges::stable_sort(members, {}, [&](int r) { return group.calls()[Index(r)].key; });
  return members;
}

Result<std::unique_ptr<Communicator>> ThreadCommunicator::Split(int color, int key) {
  std::vector<int> members;
  const ThreadCall call{.operation = Operation::kSplit, .color = color, .key = key};
  GACCD_RETURN_IF_ERROR(Run(call, [&] {
    if (color < 0) return;
    members = FindMembers(*group_, color);
    if (members.front() != rank_) return;
    std::vector<int> world_ranks;
    for (const int r : members) world_ranks.push_back(group_->world_ranks()[Index(r)]);
    group_->child(rank_) = std::make_shared<ThreadGroup>(group_->shared_world(),
                                                         std::move(world_ranks), group_->options());
  }));
  if (color < 0) return std::unique_ptr<Communicator>();
  const auto position = std::ranges::find(members, rank_) - members.begin();
  auto part = std::make_unique<ThreadCommunicator>(group_->child(members.front()),
                                                   static_cast<int>(position));
  ShareTrafficCounters(*part);
  return std::unique_ptr<Communicator>(std::move(part));
}

Status CallBody(const std::function<Status(Communicator&)>& body, Communicator& comm) {
  try {
    return body(comm);
  } catch (const std::exception& error) {
    return {ErrorKind::kInternal, StrCat("unexpected exception: ", error.what())};
  }
}

void RunOneRank(const std::shared_ptr<ThreadGroup>& group, int rank,
                const std::function<Status(Communicator&)>& body) {
  ThreadCommunicator comm(group, rank);
  const Status status = CallBody(body, comm);
  if (status.ok()) return group->world().Exit(rank);
  const std::string message = StrCat("rank ", rank, " failed: ", status.message());
  group->world().Fail({ErrorKind::kUnavailable, message}, {status.kind(), message});
}

}  // namespace

Status RunThreadRanks(int ranks, const ThreadGroupOptions& options,
                      const std::function<Status(Communicator&)>& body) {
  if (ranks < 1 || options.ranks_per_node < 0) {
    return {ErrorKind::kInternal,
            StrCat("ranks as threads: expected at least 1 rank and no negative ranks per node, "
                   "found ",
                   ranks, " and ", options.ranks_per_node)};
  }
  if (!options.node_of.empty() && std::ssize(options.node_of) != ranks) {
    return {ErrorKind::kInternal, StrCat("ranks as threads: expected the nodes of ", ranks,
                                         " ranks, found ", options.node_of.size())};
  }
  std::vector<std::string> hosts;
  std::vector<int> node_of = options.node_of;
  for (int r = 0; r < ranks; ++r) {
    if (options.node_of.empty()) {
      node_of.push_back(options.ranks_per_node == 0 ? 0 : r / options.ranks_per_node);
    }
    hosts.push_back(StrCat("node", node_of[Index(r)]));
  }
  const auto world = std::make_shared<ThreadWorld>(std::move(hosts), std::move(node_of));
  std::vector<int> everyone(Index(ranks));
  std::iota(everyone.begin(), everyone.end(), 0);
  const auto group = std::make_shared<ThreadGroup>(world, std::move(everyone), options.comm);

  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    auto thread = StartThread(StrCat("a thread for rank ", r, " of ", ranks),
                              [&group, r, &body] { RunOneRank(group, r, body); });
    if (!thread.ok()) {
      world->Fail(thread.status(), thread.status());
      break;
    }
    threads.push_back(*std::move(thread));
  }
  for (std::thread& thread : threads) thread.join();
  return world->result();
}

}  // namespace gaccd
