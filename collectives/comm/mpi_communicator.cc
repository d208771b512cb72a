#include "collectives/comm/mpi_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "collectives/base/hash.h"
#include "collectives/base/strings.h"
#include "collectives/liveness/deadline/deadline.h"

namespace gaccd {
namespace {

// Staging memory with several nodes: this many elements of 8 bytes.
constexpr std::size_t kLargestSegment = std::size_t{1} << 20;
// Staging memory on one node, where small pieces stay in the cache.
constexpr std::size_t kStagedBytes = std::size_t{256} << 10;
constexpr std::size_t kWidestElement = 8;

// Data exchanged by all ranks when a communicator is created.
struct CommConfig {
  std::int64_t node_key = 0;
  std::int64_t segment = 0;
  std::int64_t bound_ms = 0;
  std::array<char, 232> host{};
};

// Memory in a window of the node. Keeps the window mapped.
class WindowMemory final : public CommMemory {
 public:
  WindowMemory(std::shared_ptr<NodeGroup> node, int window, std::size_t bytes)
      : node_(std::move(node)), window_(window), bytes_(bytes) {}
  ~WindowMemory() override { node_->ReleaseSegment(window_); }

  [[nodiscard]] void* data() const override {
    return node_->window_segment(window_, node_->rank());
  }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<NodeGroup> node_;
  int window_;
  std::size_t bytes_;
};

// For blocking MPI set-up calls: ends this process if a rank dies during the call.
ExitTimer SetUpLimit(const CommOptions& options, std::string_view host, const char* what) {
  return {options.bound, static_cast<int>(ErrorKind::kUnavailable),
          StrCat("gaccd on ", host, ": ", what, " did not end within ", options.bound.count(),
                 " ms: another rank is missing")};
}

}  // namespace

std::uint64_t HashShape(std::initializer_list<std::uint64_t> words) {
  std::uint64_t hash = kFnvBasis;
  for (const std::uint64_t word : words) hash = FnvStep(hash, word);
  return hash;
}

std::uint64_t HashShape(std::span<const std::int64_t> counts, DType dtype) {
  std::uint64_t hash = HashShape({static_cast<std::uint64_t>(dtype)});
  for (std::int64_t count : counts) hash = HashShape({hash, static_cast<std::uint64_t>(count)});
  return hash;
}

MpiCommunicator::MpiCommunicator(const MpiGroup& group, const CommOptions& options)
    : options_(options),
      oversubscribed_(group.oversubscribed),
      sleeps_(group.sleeps),
      broken_(group.broken),
      host_(group.host),
      segment_(std::clamp<std::size_t>(options.segment_elements, 1, kLargestSegment)) {}

Result<std::unique_ptr<Communicator>> MpiCommunicator::Make(const MpiGroup& group,
                                                            const CommOptions& options) {
  const ExitTimer limit = SetUpLimit(options, group.host, "making an MPI communicator");
  std::unique_ptr<MpiCommunicator> made(new MpiCommunicator(group, options));
  GACCD_ASSIGN_OR_RETURN(made->comm_, DuplicateComm(group.comm));
  MPI_Comm_rank(made->comm_, &made->rank_);
  MPI_Comm_size(made->comm_, &made->size_);
  GACCD_RETURN_IF_ERROR(made->ExchangeTopology(group));
  if (Status parts = made->MakeParts(group); !parts.ok()) {
    if (group.broken) group.broken->store(true);  // the ranks of other nodes may not have failed
    return parts;
  }
  return std::unique_ptr<Communicator>(std::move(made));
}

Status MpiCommunicator::ExchangeTopology(const MpiGroup& group) {
  CommConfig own;
  own.node_key = group.node_key;
  own.segment = static_cast<std::int64_t>(segment_);
  own.bound_ms = options_.bound.count();
  group.host.copy(own.host.data(), own.host.size() - 1);
  std::vector<CommConfig> all(static_cast<std::size_t>(size_));
  GACCD_RETURN_IF_ERROR(MpiStatus(MPI_Allgather(&own, sizeof(CommConfig), MPI_BYTE, all.data(),
                                                sizeof(CommConfig), MPI_BYTE, comm_),
                                  "exchange of host names"));
  std::vector<std::int64_t> keys;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const CommConfig& config = all[r];
    if (config.segment != own.segment || config.bound_ms != own.bound_ms) {
      return {ErrorKind::kConfig,
              StrCat("communicator options differ: rank ", r, " on ", config.host.data(),
                     " has bound ", config.bound_ms, " ms and segment ", config.segment, ", rank ",
                     rank_, " has ", own.bound_ms, " ms and ", own.segment)};
    }
    const auto found = std::ranges::find(keys, config.node_key);
    topology_.node_of.push_back(static_cast<int>(found - keys.begin()));
    if (found == keys.end()) keys.push_back(config.node_key);
    topology_.hosts.emplace_back(config.host.data());
  }
  topology_.nodes = static_cast<int>(keys.size());
  return Status::Ok();
}

Status MpiCommunicator::MakeParts(const MpiGroup& group) {
  const int own_node = topology_.node_of[static_cast<std::size_t>(rank_)];
  std::vector<int> local_ranks;
  for (int r = 0; r < size_; ++r) {
    if (topology_.node_of[static_cast<std::size_t>(r)] == own_node) local_ranks.push_back(r);
  }
  topology_.local_size = static_cast<int>(local_ranks.size());
  topology_.local_rank =
      static_cast<int>(std::ranges::find(local_ranks, rank_) - local_ranks.begin());
  copies_.resize(local_ranks.size());

  const std::size_t staging =
      one_node() ? std::min(segment_ * kWidestElement, kStagedBytes) : segment_ * kWidestElement;
  GACCD_ASSIGN_OR_RETURN(MPI_Comm node_comm, SplitComm(comm_, own_node, rank_));
  GACCD_ASSIGN_OR_RETURN(node_, NodeGroup::Make(node_comm, std::move(local_ranks), staging));

  std::unique_ptr<MpiReports> reports;
  if (!one_node()) {
    std::vector<int> sizes(static_cast<std::size_t>(topology_.nodes));
    for (int node : topology_.node_of) ++sizes[static_cast<std::size_t>(node)];
    lanes_ = *std::ranges::min_element(sizes);
    const int lane = topology_.local_rank < lanes_ ? topology_.local_rank : -1;
    GACCD_ASSIGN_OR_RETURN(lane_comm_, SplitComm(comm_, lane, own_node));
    GACCD_ASSIGN_OR_RETURN(MPI_Comm side, DuplicateComm(comm_));
    reports = std::make_unique<MpiReports>(side, &topology_, rank_);
  }
  watch_ =
      std::make_unique<MpiWatch>(&topology_, rank_, node_, std::move(reports), options_, group);
  return Status::Ok();
}

std::size_t MpiCommunicator::StagedElements(DType dtype) const {
  return std::min(segment_, node_->staging_bytes() / SizeOf(dtype));
}

std::span<void* const> MpiCommunicator::NodeStaging(std::size_t half) {
  for (int i = 0; i < node_->size(); ++i) {
    copies_[static_cast<std::size_t>(i)] = node_->staging(i, half);
  }
  return copies_;
}

Status MpiCommunicator::BarrierAll() {
  if (one_node()) return watch_->BarrierAndCheck();
  MPI_Request request = MPI_REQUEST_NULL;
  return Finish(MPI_Ibarrier(comm_, &request), &request, "MPI_Ibarrier");
}

Status MpiCommunicator::Finish(int code, MPI_Request* request, std::string_view what) {
  GACCD_RETURN_IF_ERROR(MpiStatus(code, what));
  return watch_->Finish(request);
}

Status MpiCommunicator::Barrier() {
  return Run(Operation::kBarrier, 0, kPrivate, [&] { return BarrierAll(); });
}

Status MpiCommunicator::DoAllGather(ConstBuffer in, std::span<const std::int64_t> counts,
                                    MutableBuffer out, StreamHandle) {
  const std::int64_t place = one_node() ? node_->FindPlace(out) : kPrivate;
  return Run(Operation::kAllGather, HashShape(counts, in.dtype), place, [&] {
    return one_node() ? GatherOnNode(in, counts, out, place) : GatherAcross(in, counts, out);
  });
}

Status MpiCommunicator::DoReduceScatter(ConstBuffer in, std::span<const std::int64_t> counts,
                                        MutableBuffer out, StreamHandle) {
  const std::int64_t place = one_node() ? node_->FindPlace(in) : kPrivate;
  return Run(Operation::kReduceScatter, HashShape(counts, in.dtype), place, [&] {
    return one_node() ? ScatterOnNode(in, counts, out, place) : ScatterAcross(in, counts, out);
  });
}

Status MpiCommunicator::DoBroadcast(MutableBuffer buffer, int root, StreamHandle) {
  const std::uint64_t shape = HashShape(
      {buffer.count, static_cast<std::uint64_t>(buffer.dtype), static_cast<std::uint64_t>(root)});
  return Run(Operation::kBroadcast, shape, kPrivate, [&] {
    return one_node() ? BroadcastOnNode(buffer, root) : BroadcastAcross(buffer, root);
  });
}

Result<std::unique_ptr<CommMemory>> MpiCommunicator::Allocate(std::size_t bytes) {
  int window = 0;
  const Status status = Run(Operation::kAllocate, HashShape({bytes}), kPrivate, [&]() -> Status {
    GACCD_RETURN_IF_ERROR(BarrierAll());
    const ExitTimer limit = SetUpLimit(options_, host_, "allocating shared memory");
    GACCD_ASSIGN_OR_RETURN(window, node_->AddWindow(bytes));
    return Status::Ok();
  });
  if (!status.ok()) return status;
  node_->ZeroSegment(window);  // takes long for large sizes, and needs no other rank
  return std::unique_ptr<CommMemory>(std::make_unique<WindowMemory>(node_, window, bytes));
}

Result<std::unique_ptr<Communicator>> MpiCommunicator::Split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  const Status status = Run(Operation::kSplit, 0, kPrivate, [&]() -> Status {
    GACCD_RETURN_IF_ERROR(BarrierAll());
    const ExitTimer limit = SetUpLimit(options_, host_, "splitting an MPI communicator");
    GACCD_ASSIGN_OR_RETURN(part, SplitComm(comm_, color, key));
    return Status::Ok();
  });
  if (!status.ok()) return status;
  if (part == MPI_COMM_NULL) return std::unique_ptr<Communicator>();
  const int node = topology_.node_of[static_cast<std::size_t>(rank_)];
  auto made = Make({part, node, host_, oversubscribed_, sleeps_, broken_}, options_);
  if (made.ok()) ShareTrafficCounters(**made);
  return made;
}

Status MpiCommunicator::Poll() {
  return options_.interrupt == nullptr ? Status::Ok() : options_.interrupt->status();
}

void MpiCommunicator::Abort(int exit_code) noexcept {
  broken_->store(true);
  // MPI_Abort asks the launcher to end all processes; if it does not, end at least this one, within
  // the part of the bound that is left after naming the missing ranks.
  const auto patience =
      std::min<std::chrono::milliseconds>(std::chrono::seconds(2), options_.bound * 15 / 100);
  const ExitTimer limit(patience, exit_code,
                        StrCat("gaccd on ", host_, ": rank ", rank_, " exits after MPI_Abort(",
                               exit_code, ") without an answer from the launcher"));
  MPI_Abort(comm_, exit_code);
  _exit(exit_code);
}

}  // namespace gaccd
