// MpiSession: MPI_Init and MPI_Finalize with time limits.
//
// One per process, created and destroyed by the main thread. MPI then returns errors as values. A
// process whose collective failed does not finalize, as it would wait forever for the others.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/base/result.h"
#include "collectives/bootstrap/launcher_watch.h"
#include "collectives/bootstrap/world_check.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct MpiSessionOptions {
  // If not all ranks have started within this time, the process prints an error and exits
  // with code 69.
  std::chrono::milliseconds init_bound{300'000};
  std::chrono::milliseconds finalize_bound{60'000};
};

// Position of a rank.
struct MpiFacts {
  int rank = 0;
  int world = 1;
  std::string host;
  int local_rank = 0;  // among the ranks that share this node's memory
  int local_size = 1;
  int node_key = 0;             // the lowest rank of this node
  bool oversubscribed = false;  // the node has more ranks than cores available to them
  // oversubscribed, or Open MPI is set to yield (mpi_yield_when_idle=1): other processes need the
  // cores of waiting ranks.
  bool sleeps = false;
};

class MpiSession {
 public:
  // Collective. Includes CheckLauncher() and CheckWorld(): kConfig if the number of ranks differs
  // from the launched one. kUnavailable if MPI fails.
  static Result<std::unique_ptr<MpiSession>> Start(const MpiSessionOptions& options,
                                                   const Environment& env);
  // Calls MPI_Finalize, unless a collective or the start has failed.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  [[nodiscard]] const MpiFacts& facts() const { return facts_; }
  // Set by communicators when an operation fails.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& broken() const { return broken_; }

 private:
  explicit MpiSession(const MpiSessionOptions& options) : options_(options) {}
  Status FindFacts();

  MpiSessionOptions options_;
  MpiFacts facts_;
  std::unique_ptr<LauncherWatch> launcher_;
  std::shared_ptr<std::atomic<bool>> broken_ = std::make_shared<std::atomic<bool>>(false);
};

// Overrides the division of ranks into nodes and the detection of oversubscription, for tests on
// one machine.
struct FakeNode {
  int node = 0;
  std::string host;
  std::optional<bool> oversubscribed = std::nullopt;
};

// The communicator of all ranks. Collective.
Result<std::unique_ptr<Communicator>> MakeMpi(const MpiSession& session, const CommOptions& options,
                                              const std::optional<FakeNode>& fake = std::nullopt);

// The MPI versions at compile time and at run time.

// "3.1, Open MPI v4.1.4 (compiled with v4.1.4)": the standard, the loaded library, and the version
// it was compiled with. Works before MPI_Init.
[[nodiscard]] std::string MpiVersion();

// The same as numbers. All 0: unknown, not Open MPI.
struct MpiNumbers {
  std::array<int, 3> compiled{};
  std::array<int, 3> loaded{};
};
[[nodiscard]] MpiNumbers MpiVersionNumbers();

}  // namespace gaccd
