// MakeNccl: from a host communicator and a GPU to a NCCL communicator.
#include <algorithm>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/comm/nccl_communicator.h"
#include "collectives/comm/nccl_settings.h"

namespace gaccd {
namespace {

// What a rank can do alone. Everything that may fail here is told to the others in its hello.
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

// Non-blocking: NCCL goes on in a thread of its own.
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

}  // namespace

ncclConfig_t NcclConfig(const char* name) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.commName = name;
  // Reductions run beside the backward pass: leave it the multiprocessors that they do not need.
  config.CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
  return config;
}

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
  GACCD_ASSIGN_OR_RETURN(auto watch, NcclWatch::Start(std::move(watched)));
  return std::unique_ptr<Communicator>(
      std::make_unique<NcclCommunicator>(over, std::move(owned), options, std::move(watch)));
}

Result<std::unique_ptr<Communicator>> MakeNccl(Communicator& over, const NcclOptions& asked) {
  NcclOptions options = asked;
  const std::vector<int> roots = NcclRoots(over.size(), std::max(options.ranks_per_root, 1));
  NcclHello mine;
  mine.bound_ms = options.comm.bound.count();
  mine.message_elements = static_cast<std::int64_t>(options.message_elements);
  mine.windows = options.windows ? 1 : 0;
  const ProcessName process = ThisProcess();
  mine.pid = process.pid;
  mine.pid_namespace = process.pid_namespace;
  SetError(Prepare(over, &options, roots, &mine), &mine);
  GACCD_ASSIGN_OR_RETURN(const std::vector<NcclHello> hellos, ExchangeHellos(over, mine));
  GACCD_RETURN_IF_ERROR(CheckSameHellos(hellos, over.topology()));

  std::vector<ncclUniqueId> ids;
  for (const int root : roots) ids.push_back(hellos[static_cast<std::size_t>(root)].id);
  ncclComm_t comm = nullptr;
  const char* what = "ncclCommInitRank";
  Status made = NcclStatus(*options.api, nullptr, StartInit(options, over, ids, &comm), what);
  if (made.ok()) {
    const std::chrono::nanoseconds limit =
        std::chrono::duration_cast<std::chrono::nanoseconds>(options.comm.bound * kNcclSetUpShare);
    made = WaitForNccl(*options.api, comm, limit, WatchPeers(hellos, over.topology(), over.rank()),
                       what);
  }
  // A rank that failed says so; the others come here at the latest when their limit has passed.
  return AdoptNccl(&over, nullptr, options, comm, made);
}

}  // namespace gaccd
