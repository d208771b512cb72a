// Gradients of collective operations on real MPI processes; run by mpirun. Exit code 0: every
// gradient equals its finite differences, and on several ranks every wrong one was seen.
#include <cstdio>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/mpi_session.h"
#include "tests/ranks/op_gradients.h"
#include "tests/ranks/rank_process.h"

namespace gaccd {
namespace {

Status RunCases(Communicator& comm) {
  for (const tests::GradientCase& test : tests::GradientCases()) {
    GACCD_RETURN_IF_ERROR(test.run(comm).WithContext(test.name));
  }
  if (comm.size() == 1) return Status::Ok();  // alone, a sum over ranks and the identity are one
  for (const tests::GradientCase& test : tests::WrongGradientCases()) {
    const Status status = test.run(comm);
    if (status.ok()) return {ErrorKind::kInternal, StrCat(test.name, ": not seen to be wrong")};
    if (status.kind() == ErrorKind::kUnavailable) return status;
  }
  return Status::Ok();
}

Status RunSession() {
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session,
                         MpiSession::Start({}, ProcessEnvironment()));
  CommOptions options;
  options.bound = std::chrono::seconds(20);
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> comm, MakeMpi(*session, options));
  Status status = RunCases(*comm);
  if (status.ok()) return status;
  std::fprintf(stderr, "rank %d: %s\n", comm->rank(), status.message().c_str());
  comm->Abort(static_cast<int>(status.kind()));
  return status;
}

}  // namespace
}  // namespace gaccd

int gaccd::tests::MpiGradients(int /*argc*/, char** /*argv*/) {
  const gaccd::Status status = gaccd::RunSession();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return static_cast<int>(status.kind());
}
