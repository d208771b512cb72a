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
#include "tests/support/engine_ranks.h"

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

// The case on engines on GPUs. Ranks that fail stay until all have ended, so that none learns of it
// from the end of another.
inline std::vector<RankOutcome> RunCudaRanks(const EngineCase& test,
                                             const EngineRanks& ranks = {}) {
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
      EngineRanks settings = ranks;
      if (ranks.one_gpu) {
        // Unlike processes, threads share all of a GPU: memory that one allocates waits for the
        // others' collectives, which wait for this one.
        settings.options = [&](int rank) {
          EngineRunOptions options = ranks.options ? ranks.options(rank) : EngineRunOptions{};
          options.before_updates = [&] {
            ++ready;
            while (ready + ended < world) std::this_thread::yield();
          };
          return options;
        };
      }
      outcome.run = RunRank(**comm, test, choice, settings);
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

}  // namespace gaccd::tests
