#include "tests/support/engine_ranks.h"

#include "collectives/comm/threads.h"

namespace gaccd::tests {

Result<EngineRun> RunRank(Communicator& engine_comm, const EngineCase& test,
                          const EngineChoice& choice, const EngineRanks& ranks) {
  const EngineRunOptions options =
      ranks.options ? ranks.options(engine_comm.rank()) : EngineRunOptions{};
  if (!ranks.two_levels) return RunEngine(engine_comm, test, choice, options);
  GACCD_ASSIGN_OR_RETURN(const auto two_levels, TwoLevelCommunicator::Make(engine_comm));
  return RunEngine(*two_levels, test, choice, options);
}

std::vector<Result<EngineRun>> RunCpuRanks(const EngineCase& test, const EngineRanks& ranks) {
  const int world = test.ranks * test.stages;
  std::vector<Result<EngineRun>> runs(static_cast<std::size_t>(world),
                                      Status(ErrorKind::kInternal, "did not run"));
  (void)RunThreadRanks(world, {.comm = {}, .node_of = ranks.node_of}, [&](Communicator& comm) {
    auto& run = runs[static_cast<std::size_t>(comm.rank())];
    run = RunRank(comm, test, ranks.choice, ranks);
    return run.status();
  });
  return runs;
}

}  // namespace gaccd::tests
