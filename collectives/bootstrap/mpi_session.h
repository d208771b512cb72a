// MpiSession: from MPI_Init to MPI_Finalize, neither of which can hang.
//
// One per process, made and destroyed by the main thread. MPI reports errors as values from then
// on. A process whose collective operation failed does not finalize: the others would never come.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/base/result.h"
#include "collectives/bootstrap/world_check.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct MpiSessionOptions {
  // If the other ranks do not come within this time, the process says so and exits with code 69.
  std::chrono::milliseconds init_bound{300'000};
  std::chrono::milliseconds finalize_bound{60'000};
};

// What a rank knows about its place.
struct MpiFacts {
  int rank = 0;
  int world = 1;
  std::string host;
  int local_rank = 0;  // among the ranks that share this node's memory
  int local_size = 1;
  int node_key = 0;             // the lowest rank of this node
  bool oversubscribed = false;  // the ranks of this node are more than the cores they may use
  // That, or Open MPI is asked to (mpi_yield_when_idle=1): others need the cores of waiting ranks.
  bool sleeps = false;
};

class MpiSession {
 public:
  // Collective. Includes CheckLauncher() and CheckWorld(): kConfig when the world is not the one
  // that was launched. kUnavailable when MPI does not work.
  static Result<std::unique_ptr<MpiSession>> Start(const MpiSessionOptions& options,
                                                   const Environment& env);
  // MPI_Finalize, unless a collective operation or the start failed.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] const MpiFacts& facts() const { return facts_; }
  // Set by communicators when an operation failed.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& broken() const { return broken_; }

 private:
  explicit MpiSession(const MpiSessionOptions& options) : options_(options) {}
  Status FindFacts();

  MpiSessionOptions options_;
  MpiFacts facts_;
  std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
};

// Another division of the ranks into nodes than the real one, and another opinion on whether cores
// are scarce, for tests of all paths on one machine.
struct FakeNode {
  int node = 0;
  std::string host;
  std::optional<bool> oversubscribed = std::nullopt;
};

// The communicator of all ranks. Collective.
Result<std::unique_ptr<Communicator>> MakeMpi(const MpiSession& session,
                                              const CommOptions& options);
Result<std::unique_ptr<Communicator>> MakeMpiWithNodes(const MpiSession& session,
                                                       const CommOptions& options,
                                                       const FakeNode& fake);

}  // namespace gaccd
