// The MPI communicator does what every communicator must do. Run by mpirun, once per layout:
//   rank_process conformance [segment_elements [largest [oversubscribed [node of rank 0, of rank 1,
//   ...]]]]
// oversubscribed: 1 or 0, whether ranks behave as if cores were scarce. With nodes given they
// behave as if they were on these nodes, so that all paths are tested on one machine. Exit code 0:
// all cases passed on this rank.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "tests/ranks/conformance.h"
#include "tests/ranks/rank_process.h"

namespace gaccd {
namespace {

Result<std::unique_ptr<Communicator>> MakeComm(const MpiSession& session,
                                               const std::vector<std::size_t>& args) {
  CommOptions options;
  options.bound = std::chrono::seconds(20);
  if (!args.empty()) options.segment_elements = args[0];
  if (args.size() <= 2) return MakeMpi(session, options);
  FakeNode fake = {session.facts().node_key, session.facts().host, args[2] != 0};
  if (args.size() > 3) {
    const std::size_t index = 3 + static_cast<std::size_t>(session.facts().rank);
    if (index >= args.size()) {
      return Status(ErrorKind::kUsage, StrCat("a node for each of ", session.facts().world,
                                              " ranks is needed, found ", args.size() - 3));
    }
    fake.node = static_cast<int>(args[index]);
    fake.host = StrCat("fake", fake.node);
  }
  return MakeMpi(session, options, fake);
}

Status RunCases(const std::vector<std::size_t>& args) {
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session,
                         MpiSession::Start({}, ProcessEnvironment()));
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, MakeComm(*session, args));
  tests::ConformanceOptions options;
  if (args.size() > 1) options.largest = args[1];
  Status status = tests::RunConformance(*comm, options);
  if (status.ok() || status.kind() != ErrorKind::kUnavailable) return status;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  comm->Abort(static_cast<int>(status.kind()));
  return status;
}

}  // namespace
}  // namespace gaccd

int gaccd::tests::MpiConformance(int argc, char** argv) {
  std::vector<std::size_t> args;
  for (int i = 1; i < argc; ++i) args.push_back(std::strtoull(argv[i], nullptr, 10));
  const gaccd::Status status = gaccd::RunCases(args);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
