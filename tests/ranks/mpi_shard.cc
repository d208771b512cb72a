// Sharded updates on MPI processes: rank_process shard [node of rank 0, of rank 1, ...]
// Every mode and up to four micro-steps, ragged, with a smaller third update: on one node the bits
// of an unsharded run, between nodes, where MPI chooses the order of sums, 1e-6; the bytes of the
// formula. Exit code 0: all is right on this rank.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/update_control.h"
#include "tests/ranks/rank_data.h"
#include "tests/ranks/rank_process.h"
#include "tests/support/engine_runs.h"

namespace gaccd::tests {
namespace {

EngineCase MakeCase(const Communicator& comm, std::int64_t micro_steps) {
  const std::int64_t world = comm.size();
  return {.ranks = comm.size(),
          .micro = 3,
          .target = micro_steps * 3 * world - world / 2 - 1 + (world == 1 ? 1 : 0),
          .updates = 4,
          .tail = 2,
          .widths = {24, 90, 70, 5},  // 9 blocks
          .optimizer = {.lr = 0.01, .kind = AdamWSpec{.epsilon = 1e-3}, .ema = EmaSpec{0.75}},
          .clip_norm = micro_steps % 2 == 0 ? 0.05 : 0};
}

void Compare(const EngineRun& found, const EngineRun& expected, bool same_bits, Notes& notes) {
  for (std::size_t u = 0; u < expected.results.size(); ++u) {
    const double norm = expected.results[u].grad_norm;
    notes.Expect(std::abs(found.results[u].grad_norm - norm) <= (same_bits ? 0 : 1e-6 * norm),
                 "norm of update ", u, ": ", found.results[u].grad_norm, ", expected ", norm);
  }
  const double distance = Distance(found.parameters, expected.parameters);
  notes.Expect(distance <= (same_bits ? 0 : 1e-6), "parameters are off by ", distance);
  const double state = Distance(found.state, expected.state);
  notes.Expect(state <= (same_bits ? 0 : 1e-5), "the state is off by ", state);
}

// The digest that rank 0 has.
Result<std::uint64_t> OfFirst(Communicator& comm, std::uint64_t digest) {
  auto bits = static_cast<std::int64_t>(digest);
  GACCD_RETURN_IF_ERROR(comm.Broadcast(View(std::span(&bits, 1)), 0));
  return static_cast<std::uint64_t>(bits);
}

Status CheckMode(Communicator& comm, EngineCase test, const EngineRun& expected, Notes& notes) {
  const std::vector<int> nodes = CountRanksByNode(comm.topology());
  CommTraffic before;
  CommTraffic after;
  GACCD_ASSIGN_OR_RETURN(const EngineRun run,
                         RunEngine(comm, test, {},
                                   {.before_updates = [&] { before = comm.traffic(); },
                                    .after_updates = [&] { after = comm.traffic(); }}));
  Compare(run, expected, nodes.size() == 1, notes);
  GACCD_ASSIGN_OR_RETURN(const std::uint64_t first, OfFirst(comm, run.digest));
  notes.Expect(run.digest == first, "rank 0 has other parameters");
  std::vector<std::int64_t> sent = {after.sent - before.sent,
                                    after.between_nodes - before.between_nodes};
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(std::span(sent)), View(std::span(sent))));
  if (!std::ranges::is_sorted(comm.topology().node_of)) return Status::Ok();  // no neighbours
  CommTraffic update = UpdateTraffic(test.shard, MakeCaseModel(test).layout(), nodes);
  update += SumTraffic(
      static_cast<std::int64_t>(sizeof(UpdateSums) + test.control_words * sizeof(double)), nodes);
  notes.Expect(
      sent[0] == test.updates * update.sent && sent[1] == test.updates * update.between_nodes,
      "sent ", sent[0], " bytes, ", sent[1], " between nodes, expected ",
      test.updates * update.sent, " and ", test.updates * update.between_nodes);
  return Status::Ok();
}

Status RunModes(Communicator& comm) {
  Status first;
  for (std::int64_t steps = 1; steps <= 4; ++steps) {
    EngineCase test = MakeCase(comm, steps);
    GACCD_ASSIGN_OR_RETURN(const EngineRun expected, RunEngine(comm, test, {}));
    for (const Sharding mode :
         {Sharding::kNone, Sharding::kOptimizer, Sharding::kNode, Sharding::kNodeOptimizer}) {
      test.shard = mode;
      Notes notes;
      GACCD_RETURN_IF_ERROR(CheckMode(comm, test, expected, notes));
      if (!notes.status().ok() && first.ok()) {
        first = notes.status().WithContext(
            StrCat("rank ", comm.rank(), ", ", Name(mode), ", ", steps, " micro-steps"));
      }
    }
  }
  return first;
}

Status Start(const std::vector<int>& node_of) {
  GACCD_ASSIGN_OR_RETURN(const auto session, MpiSession::Start({}, ProcessEnvironment()));
  FakeNode fake = {session->facts().node_key, session->facts().host, true};
  const auto rank = static_cast<std::size_t>(session->facts().rank);
  if (rank < node_of.size()) fake = {node_of[rank], StrCat("fake", node_of[rank]), true};
  GACCD_ASSIGN_OR_RETURN(const auto comm,
                         MakeMpi(*session, {.bound = std::chrono::seconds(60)}, fake));
  Status status = RunModes(*comm);
  if (status.ok()) return status;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  if (status.kind() == ErrorKind::kUnavailable) comm->Abort(static_cast<int>(status.kind()));
  return status;
}

}  // namespace
}  // namespace gaccd::tests

int gaccd::tests::MpiShard(int argc, char** argv) {
  std::vector<int> node_of;
  for (int i = 1; i < argc; ++i) node_of.push_back(std::atoi(argv[i]));
  const gaccd::Status status = gaccd::tests::Start(node_of);
  return status.ok() ? 0 : static_cast<int>(status.kind());
}
