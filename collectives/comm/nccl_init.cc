// MakeNccl: creates a NCCL communicator from a host communicator and a GPU.
#include <algorithm>
#include <utility>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/comm/nccl_communicator.h"
#include "collectives/comm/nccl_settings.h"
#include "collectives/comm/wait.h"

namespace gaccd {
namespace {

constexpr const char* kInit = "ncclCommInitRank";

// The local part of the set-up. A failure is sent to the others in the hello.
Status Prepare(const Communicator& over, NcclOptions* options, std::span<const int> roots,
               NcclHello* hello) {
  if (options->message_elements == 0) {
    return {ErrorKind::kInternal,
            "the largest message of NCCL must be at least 1 element, found 0"};
  }
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaSetDevice(options->device), StrCat("cudaSetDevice(", options->device, ")")));
  if (options->api == nullptr) {
    GACCD_ASSIGN_OR_RETURN(options->api, LoadNccl());
  }
  const NcclApi& api = *options->api;
  GACCD_RETURN_IF_ERROR(CheckNcclVersion(api));
  int version = 0;
  GACCD_RETURN_IF_ERROR(NcclStatus(api, nullptr, api.GetVersion(&version), "ncclGetVersion"));
  hello->version = version;
  if (!std::ranges::binary_search(roots, over.rank())) return Status::Ok();
  return NcclStatus(api, nullptr, api.GetUniqueId(&hello->id), "ncclGetUniqueId");
}

// Non-blocking: NCCL continues on its own thread.
ncclResult_t StartInit(const NcclOptions& options, const Communicator& over,
                       std::vector<ncclUniqueId> ids, ncclComm_t* comm) {
  ncclConfig_t config = NcclConfig("gaccd");
  const NcclApi& api = *options.api;
  if (ids.size() == 1) {
    return api.CommInitRankConfig(comm, over.size(), ids.front(), over.rank(), &config);
  }
  return api.CommInitRankScalable(comm, over.size(), over.rank(), static_cast<int>(ids.size()),
                                  ids.data(), &config);
}

// Set-up state of a rank, as sent to the others.
enum class Stage : std::int64_t { kWorking, kReady, kFailed, kLate };

// The state of this rank; `status` is its error if it has failed.
Stage PollHealth(const NcclApi& api, ncclComm_t comm, Status* status) {
  if (!status->ok()) return Stage::kFailed;
  ncclResult_t state = ncclInProgress;
  *status = NcclStatus(api, comm, api.CommGetAsyncError(comm, &state), kInit);
  if (status->ok()) *status = NcclStatus(api, comm, state, kInit);
  if (!status->ok()) return Stage::kFailed;
  return state == ncclInProgress ? Stage::kWorking : Stage::kReady;
}

Status NotReady(std::span<const std::int64_t> stages, const Topology& topology,
                std::chrono::milliseconds limit) {
  std::string ranks;
  int more = 0;
  for (std::size_t r = 0; r < stages.size(); ++r) {
    if (static_cast<Stage>(stages[r]) == Stage::kReady) continue;
    constexpr std::size_t kMaxText = 150;
    if (ranks.size() > kMaxText) {
      ++more;
    } else {
      ranks += StrCat(ranks.empty() ? "" : ", ", RankOnHost(static_cast<int>(r), topology.hosts));
    }
  }
  return {ErrorKind::kUnavailable,
          StrCat(kInit, ": NCCL was not ready within ",
                 std::chrono::duration_cast<std::chrono::seconds>(limit).count(), " s on ", ranks,
                 more == 0 ? "" : StrCat(" and ", more, " more ranks"),
                 "; perhaps the network between the GPUs' nodes does not work")};
}

// Collective over `over`: waits until NCCL is ready on all ranks, has failed on one, or `limit` has
// passed. The ranks exchange their state regularly, so that a lost rank on any node ends the wait.
// started: result of the call that created `comm`. Returns this rank's status.
Status WaitOnAllRanks(Communicator& over, const NcclOptions& options, ncclComm_t comm,
                      const Status& started) {
  using std::chrono::milliseconds;
  Status status = started;
  Deadline clock(options.start_limit);
  const milliseconds longest = std::min<milliseconds>(options.comm.bound / 8, milliseconds(500));
  for (milliseconds round(1);; round = std::min(2 * round, longest)) {
    Stage stage = PollHealth(*options.api, comm, &status);
    Pause pause;
    for (const auto end = Deadline::Clock::now() + round;
         stage == Stage::kWorking && Deadline::Clock::now() < end;) {
      pause.Wait();
      stage = PollHealth(*options.api, comm, &status);
    }
    if (stage == Stage::kWorking && clock.Elapsed() >= options.start_limit) stage = Stage::kLate;
    GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> stages,
                           GatherAll(over, static_cast<std::int64_t>(stage)));
    const auto any = [&](Stage wanted) {
      return std::ranges::find(stages, static_cast<std::int64_t>(wanted)) != stages.end();
    };
    if (any(Stage::kFailed)) return status;  // sent to the others with the next hello
    if (any(Stage::kLate)) return NotReady(stages, over.topology(), options.start_limit);
    if (!any(Stage::kWorking)) return status;
  }
}

// Collective over `over`: combines the result of creating `comm` on this rank with those of the
// others. All succeed, or all get the error and this rank's `comm` is aborted.
Result<std::unique_ptr<Communicator>> AdoptNccl(Communicator* over,
                                                std::unique_ptr<Communicator> owned,
                                                const NcclOptions& options, ncclComm_t comm,
                                                const Status& made) {
  NcclHello mine;
  const ProcessName process = ThisProcess();
  mine.pid = process.pid;
  mine.pid_namespace = process.pid_namespace;
  NcclBoard board;
  mine.board_fd = board.fd();
  SetError(made, &mine);
  const auto hellos = ExchangeHellos(*over, mine);
  if (!hellos.ok()) {
    NcclEnd::Abort(*options.api, comm).Wait(options.comm.bound / 10);
    return hellos.status();
  }
  NcclWatchOptions watched;
  watched.api = options.api;
  watched.comm = comm;
  watched.rank = over->rank();
  watched.device = options.device;
  watched.hosts = over->topology().hosts;
  watched.bound = options.comm.bound;
  watched.peers = WatchPeers(*hellos, over->topology(), over->rank());
  WatchBoards(*hellos, over->topology(), over->rank(), &board);
  watched.board = std::move(board);
  auto watch = NcclWatch::Start(std::move(watched));
  if (!watch.ok()) {
    NcclEnd::Abort(*options.api, comm).Wait(options.comm.bound / 10);
    return watch.status();
  }
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(over, std::move(owned), options, *std::move(watch)));
}

}  // namespace

ncclConfig_t NcclConfig(const char* name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name;
  // Not CTAPolicy, which NCCL 2.28 applies only to all-gather and reduce-scatter.
  config.maxCTAs = kNcclMaxCtas;
  return config;
}

Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, const NcclOptions& asked) {
  return MakeNcclOver(&over, nullptr, asked);
}

Result<std::unique_ptr<Communicator>> MakeNcclOver(Communicator* host,
                                                   std::unique_ptr<Communicator> owned,
                                                   const NcclOptions& asked) {
  Communicator& over = *host;
  NcclOptions options = asked;
  const std::vector<int> roots = NcclRoots(over.size(), std::max(options.ranks_per_root, 1));
  NcclHello mine;
  mine.bound_ms = options.comm.bound.count();
  mine.message_elements = static_cast<std::int64_t>(options.message_elements);
  mine.windows = options.windows ? 1 : 0;
  SetError(Prepare(over, &options, roots, &mine), &mine);
  GACCD_ASSIGN_OR_RETURN(const std::vector<NcclHello> hellos, ExchangeHellos(over, mine));
  GACCD_RETURN_IF_ERROR(CheckSameHellos(hellos, over.topology()));

  std::vector<ncclUniqueId> ids;
  for (const int root : roots) ids.push_back(hellos[static_cast<std::size_t>(root)].id);
  ncclComm_t comm = nullptr;
  const Status started =
      NcclStatus(*options.api, nullptr, StartInit(options, over, ids, &comm), kInit);
  const Status made = WaitOnAllRanks(over, options, comm, started);
  return AdoptNccl(host, std::move(owned), options, comm, made);
}

}  // namespace gaccd
