// Ranks as threads, each with an engine on its GPU, over the stand-ins.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/ranks/nccl_ranks.h"
#include "tests/support/engine_cuda_cases.h"
#include "tests/support/engine_on_gpu.h"
#include "tests/support/two_level_comm.h"

namespace gaccd::tests {

// Runs `body` once a rank, with what an engine on its GPU takes. On a new machine.
inline Status RunOnGpus(int ranks,
                        const std::function<Status(Communicator& over, const EngineChoice& choice,
                                                   Communicator* nccl)>& body) {
  ResetGpus(ranks);
  return RunNcclRanks(ranks, {}, [&](Communicator& nccl, Communicator& over) {
    return body(over, Cuda(over.rank()), &nccl);
  });
}

// What a rank came to, and how long its run took.
struct RankOutcome {
  Result<EngineRun> run = Status(ErrorKind::kInternal, "did not run");
  std::chrono::milliseconds took{0};
};

struct CudaRanks {
  EngineChoice choice;
  std::chrono::milliseconds bound{20'000};
  bool one_gpu = false;  // for all ranks
  bool windows = false;
  std::vector<int> node_of = {};  // by rank its node; empty: one node
  bool two_levels = false;        // floats are summed as in a sharded update (two_level_comm.h)
  // Options of a rank's run.
  std::function<EngineRunOptions(int rank)> options = nullptr;
};

inline Result<EngineRun> RunInTwoLevels(Communicator& comm, const EngineCase& test,
                                        const EngineChoice& choice,
                                        const EngineRunOptions& options) {
  GACCD_ASSIGN_OR_RETURN(const auto two_levels, TwoLevelCommunicator::Make(comm));
  return RunEngine(*two_levels, test, choice, options);
}

// The case on engines on GPUs. Ranks that fail stay until all have ended, so that none learns of it
// from the end of another.
inline std::vector<RankOutcome> RunCudaRanks(const EngineCase& test, const CudaRanks& ranks = {}) {
  const int world = test.ranks * test.stages;
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(world));
  std::atomic<int> ready = 0;
  std::atomic<int> ended = 0;
  const ThreadGroupOptions group{.comm = {.bound = ranks.bound}, .node_of = ranks.node_of};
  (void)RunThreadRanks(world, group, [&](Communicator& over) {
    RankOutcome& outcome = outcomes[static_cast<std::size_t>(over.rank())];
    NcclOptions nccl;
    nccl.comm.bound = ranks.bound;
    nccl.device = ranks.one_gpu ? 0 : over.rank();
    nccl.gpu_sharing = ranks.one_gpu;
    nccl.windows = ranks.windows;
    nccl.api = StandInNccl();
    EngineChoice choice = ranks.choice;
    choice.device = Device::kCuda;
    choice.gpu = nccl.device;
    choice.gpu_sharing = ranks.one_gpu;
    choice.cublaslt = Cuda().cublaslt;
    const auto start = std::chrono::steady_clock::now();
    auto comm = MakeNccl(over, nccl);
    if (comm.ok()) {
      EngineRunOptions options = ranks.options ? ranks.options(over.rank()) : EngineRunOptions{};
      if (ranks.one_gpu) {
        // Unlike processes, threads share all of a GPU: memory that one allocates waits for the
        // others' collectives, which wait for this one.
        options.before_updates = [&] {
          ++ready;
          while (ready + ended < world) std::this_thread::yield();
        };
      }
      outcome.run = ranks.two_levels ? RunInTwoLevels(**comm, test, choice, options)
                                     : RunEngine(**comm, test, choice, options);
    } else {
      outcome.run = comm.status();
    }
    outcome.took = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::steady_clock::now() - start);
    ++ended;
    while (ended < world) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Status::Ok();
  });
  return outcomes;
}

// The same on engines on CPUs.
inline std::vector<Result<EngineRun>> RunCpuRanks(const EngineCase& test,
                                                  const EngineRunOptions& options = {}) {
  const int world = test.ranks * test.stages;
  std::vector<Result<EngineRun>> runs(static_cast<std::size_t>(world),
                                      Status(ErrorKind::kInternal, "did not run"));
  (void)RunThreadRanks(world, {}, [&](Communicator& comm) {
    runs[static_cast<std::size_t>(comm.rank())] = RunEngine(comm, test, {}, options);
    return runs[static_cast<std::size_t>(comm.rank())].status();
  });
  return runs;
}

}  // namespace gaccd::tests
