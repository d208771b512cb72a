// A run that goes wrong on purpose; tests/faults/mpi_faults_test.py starts it and reads what each
// rank wrote.
//   rank_process faults FAULT VICTIM BOUND_MS DIRECTORY [node of rank 0, of rank 1, ...]
//
//   FAULT    what rank VICTIM does instead of entering operation #17
//   sleep    it sleeps
//   busy     it sleeps, and each MPI_Test of the others takes 2 ms, as where it yields the core to
//            other programs, though the ranks have a core each
//   stop     it stops as by SIGSTOP
//   kill     it dies as by SIGKILL
//   exit     it exits with code 3
//   other    it enters a broadcast where the others enter an all-reduce
//   inside   it stops somewhere between or inside operations, while all ranks reduce in a loop
//   early    it never starts MPI: the others wait in MPI_Init
//
// A rank whose operation fails writes DIRECTORY/rank.N: seconds in the failing operation, exit
// code, message. It then waits a little, so that the others can write theirs, and aborts.
#include <mpi.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "tests/ranks/rank_process.h"

namespace gaccd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kLastGoodOperation = 16;
// To find out by themselves, and to write it down: nobody's end is to be what another one sees.
constexpr std::chrono::milliseconds kTimeForTheOthers{1'500};

std::atomic<bool> slow_test{false};

struct Arguments {
  std::string fault;
  int victim = 0;
  std::chrono::milliseconds bound{0};
  std::string directory;
  std::vector<int> nodes;
};

void Misbehave(const Arguments& args, Communicator& comm) {
  if (args.fault == "stop") raise(SIGSTOP);
  if (args.fault == "kill") raise(SIGKILL);
  if (args.fault == "exit") _exit(3);
  if (args.fault == "sleep" || args.fault == "busy") {
    std::this_thread::sleep_for(std::chrono::minutes(2));
  }
  if (args.fault == "other") {
    std::vector<float> data(100);
    const Status status = comm.Broadcast(View(std::span<float>(data)), 0);
    std::fprintf(stderr, "victim: %s\n", status.message().c_str());
  }
}

// Operations until one fails.
Status Work(const Arguments& args, Communicator& comm, Clock::time_point* entered) {
  std::vector<float> data(200'000, 1.0F);
  const bool is_victim = comm.rank() == args.victim;
  std::thread stopper;
  if (args.fault == "inside" && is_victim) {
    stopper = std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      raise(SIGSTOP);
    });
    stopper.detach();
  }
  for (int operation = 1;; ++operation) {
    if (operation > kLastGoodOperation && is_victim && args.fault != "inside") {
      Misbehave(args, comm);
    }
    slow_test = args.fault == "busy" && operation > kLastGoodOperation;
    *entered = Clock::now();
    GACCD_RETURN_IF_ERROR(
        comm.AllReduceSum(View(std::span<const float>(data)), View(std::span<float>(data))));
    for (float& value : data) value = 1.0F;
  }
}

Status RunRank(const Arguments& args) {
  const Environment env = ProcessEnvironment();
  MpiSessionOptions session_options;
  if (args.fault == "early") {  // else the start is not what is tested
    session_options.init_bound = args.bound;
    if (env("OMPI_COMM_WORLD_RANK") == std::to_string(args.victim)) {
      std::this_thread::sleep_for(std::chrono::minutes(2));
    }
  }
  GACCD_ASSIGN_OR_RETURN(const auto session, MpiSession::Start(session_options, env));
  const MpiFacts& facts = session->facts();
  const CommOptions options = {.bound = args.bound};
  const auto index = static_cast<std::size_t>(facts.rank);
  std::optional<FakeNode> node;
  if (index < args.nodes.size())
    node = FakeNode{args.nodes[index], StrCat("fake", args.nodes[index])};
  if (node && args.fault == "busy") node->oversubscribed = false;
  GACCD_ASSIGN_OR_RETURN(const auto comm, MakeMpi(*session, options, node));

  Clock::time_point entered;
  Status status = Work(args, *comm, &entered);
  const std::chrono::duration<double> took = Clock::now() - entered;
  std::ofstream(StrCat(args.directory, "/rank.", facts.rank))
      << took.count() << ' ' << static_cast<int>(status.kind()) << ' ' << status.message() << '\n';
  std::this_thread::sleep_for(kTimeForTheOthers);
  comm->Abort(static_cast<int>(status.kind()));
  return status;
}

}  // namespace
}  // namespace gaccd

// In the place of the one of the library, by MPI's profiling interface.
int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  if (gaccd::slow_test) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return PMPI_Test(request, flag, status);
}

int gaccd::tests::MpiFaultRanks(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: rank_process faults FAULT VICTIM BOUND_MS DIRECTORY [node...]\n");
    return static_cast<int>(gaccd::ErrorKind::kUsage);
  }
  gaccd::Arguments args = {
      argv[1], std::atoi(argv[2]), std::chrono::milliseconds(std::atoi(argv[3])), argv[4], {}};
  for (int i = 5; i < argc; ++i) args.nodes.push_back(std::atoi(argv[i]));
  const gaccd::Status status = gaccd::RunRank(args);
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
