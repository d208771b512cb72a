#include "collectives/bootstrap/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "collectives/bootstrap/lost_connections.h"
#include "collectives/comm/mpi_communicator.h"
#include "collectives/comm/mpi_handles.h"
#include "collectives/liveness/deadline/deadline.h"

namespace gaccd {

namespace {

constexpr int kUnavailableCode = static_cast<int>(ErrorKind::kUnavailable);

std::string HostName() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown-host";
  return name.data();
}

std::string InitProblem(const std::string& host, std::chrono::milliseconds bound,
                        const Environment& env) {
  std::string text = StrCat("gaccd on ", host, ": MPI_Init did not end within ", bound.count(),
                            " ms: other ranks did not enter it");
  const Result<std::optional<LaunchedTasks>> launched = FindLaunchedTasks(env);
  if (launched.ok() && launched->has_value()) {
    text += StrCat(" (", (*launched)->variable, "=", (*launched)->tasks, ")");
  }
  return text;
}

// CheckWorld, failing on all ranks if it fails on one: a rank that exited alone would leave the
// others waiting, and itself in MPI_Finalize.
Status CheckWorldOnAll(int world, const Environment& launcher) {
  Status own = CheckWorld(world, launcher);
  int failed = own.ok() ? 0 : 1;
  GACCD_RETURN_IF_ERROR(
      MpiStatus(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD),
                "exchange of the world check"));
  if (failed == 0 || !own.ok()) return own;
  return {ErrorKind::kConfig, StrCat("another rank was not started with this world of ",
                                     Counted(world, "rank"), "; see its message")};
}

// The cores available to the ranks of a node together.
Result<std::int64_t> SharedCores(MPI_Comm node) {
  GACCD_ASSIGN_OR_RETURN(CoreMask cores, AllowedCores());
  GACCD_RETURN_IF_ERROR(
      MpiStatus(MPI_Allreduce(MPI_IN_PLACE, cores.data(), static_cast<int>(cores.size()),
                              MPI_UINT64_T, MPI_BOR, node),
                "exchange of core masks"));
  return std::ssize(CoreNumbers(cores));
}

}  // namespace

Result<std::unique_ptr<MpiSession>> MpiSession::Start(const MpiSessionOptions& options,
                                                      const Environment& env) {
  GACCD_RETURN_IF_ERROR(CheckLauncher(env));
  const Environment launcher = SnapshotLauncher(env);
  std::unique_ptr<MpiSession> session(new MpiSession(options));
  session->facts_.host = HostName();
  const ExitTimer limit(options.init_bound, kUnavailableCode,
                        InitProblem(session->facts_.host, options.init_bound, launcher));
  // Serialized: a communicator is used by one thread at a time, not necessarily the main thread.
  int provided = MPI_THREAD_SINGLE;
  GACCD_RETURN_IF_ERROR(MpiStatus(
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread"));
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  IgnoreLostConnections();
  MPI_Comm_size(MPI_COMM_WORLD, &session->facts_.world);
  MPI_Comm_rank(MPI_COMM_WORLD, &session->facts_.rank);
  if (IsStartedByLauncher()) {
    session->launcher_ = LauncherWatch::Start(session->facts_.host, session->facts_.rank);
  }
  GACCD_RETURN_IF_ERROR(CheckWorldOnAll(session->facts_.world, launcher));
  if (provided < MPI_THREAD_SERIALIZED) {
    return Status(ErrorKind::kUnavailable,
                  StrCat("MPI thread level: expected ", MPI_THREAD_SERIALIZED,
                         " (serialized), found ", provided));
  }
  GACCD_RETURN_IF_ERROR(session->FindFacts());
  session->facts_.sleeps =
      session->facts_.oversubscribed || env("OMPI_MCA_mpi_yield_when_idle") == "1";
  return session;
}

Status MpiSession::FindFacts() {
  MPI_Comm node = MPI_COMM_NULL;
  GACCD_RETURN_IF_ERROR(MpiStatus(
      MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, facts_.rank, MPI_INFO_NULL, &node),
      "MPI_Comm_split_type"));
  MPI_Comm_rank(node, &facts_.local_rank);
  MPI_Comm_size(node, &facts_.local_size);
  facts_.node_key = facts_.rank;
  GACCD_RETURN_IF_ERROR(
      MpiStatus(MPI_Bcast(&facts_.node_key, 1, MPI_INT, 0, node), "broadcast of the node key"));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t cores, SharedCores(node));
  facts_.oversubscribed = facts_.local_size > cores;
  return MpiStatus(MPI_Comm_free(&node), "MPI_Comm_free");
}

MpiSession::~MpiSession() {
  if (broken_->load()) return;
  const ExitTimer limit(
      options_.finalize_bound, kUnavailableCode,
      StrCat("gaccd on ", facts_.host, ": rank ", facts_.rank, ": MPI_Finalize did not end within ",
             options_.finalize_bound.count(), " ms: another rank did not enter it"));
  MPI_Finalize();
}

Result<std::unique_ptr<Communicator>> MakeMpi(const MpiSession& session, const CommOptions& options,
                                              const std::optional<FakeNode>& fake) {
  const MpiFacts& facts = session.facts();
  MpiGroup group;
  group.comm = MPI_COMM_WORLD;
  group.node_key = fake ? fake->node : facts.node_key;
  group.host = fake ? fake->host : facts.host;
  group.oversubscribed =
      fake ? fake->oversubscribed.value_or(facts.oversubscribed) : facts.oversubscribed;
  group.sleeps = facts.sleeps;
  group.broken = session.broken();
  return MpiCommunicator::Make(group, options);
}

std::string MpiVersion() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "not known";
  const std::string library(text.data(), static_cast<std::size_t>(length));
  // In Open MPI, package, ident and date follow the comma.
  std::string version =
      StrCat(MPI_VERSION, ".", MPI_SUBVERSION, ", ", library.substr(0, library.find(',')));
#ifdef OMPI_MAJOR_VERSION
  version += StrCat(" (compiled with v", OMPI_MAJOR_VERSION, ".", OMPI_MINOR_VERSION, ".",
                    OMPI_RELEASE_VERSION, ")");
#endif
  return version;
}

MpiNumbers MpiVersionNumbers() {
  MpiNumbers numbers;
#ifdef OMPI_MAJOR_VERSION
  numbers.compiled = {OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION, OMPI_RELEASE_VERSION};
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return numbers;
  std::array<int, 3>& loaded = numbers.loaded;
  if (std::sscanf(text.data(), "Open MPI v%d.%d.%d", &loaded[0], &loaded[1], &loaded[2]) != 3) {
    loaded = {};
  }
#endif
  return numbers;
}

}  // namespace gaccd
