// The NCCL communicator does what every communicator must do: on real GPUs, with the real NCCL,
// over MPI. Run by mpirun:
//   nccl_conformance [share] [message_elements=N] [largest=N]
// share: ranks may have one GPU; every collective then takes milliseconds. Exit code 0: all cases
// passed on this rank; 77: skipped, there is no GPU (1 with GACCD_GPU_REQUIRED=1).
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/gpus.h"
#include "collectives/bootstrap/mpi_session.h"
#include "collectives/comm/nccl_comm.h"
#include "tests/ranks/conformance.h"
#include "tests/ranks/device_copies.h"

namespace gaccd {
namespace {

constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE

struct Arguments {
  bool share = false;
  NcclOptions nccl;
  testing::ConformanceOptions suite{.largest = 20'000};
};

Arguments Read(int argc, char** argv) {
  Arguments arguments;
  constexpr std::string_view kMessage = "message_elements=";
  constexpr std::string_view kLargest = "largest=";
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "share") arguments.share = true;
    if (text.starts_with(kMessage)) {
      arguments.nccl.message_elements = std::stoul(text.substr(kMessage.size()));
    }
    if (text.starts_with(kLargest)) {
      arguments.suite.largest = std::stoul(text.substr(kLargest.size()));
    }
  }
  return arguments;
}

Status RunOn(Communicator& over, const Arguments& arguments) {
  NcclOptions options = arguments.nccl;
  options.gpu_sharing = arguments.share;
  GACCD_ASSIGN_OR_RETURN(const GpuFacts gpu, AssignGpu(over, arguments.share));
  options.device = gpu.device;
  GACCD_ASSIGN_OR_RETURN(const auto comm, MakeNccl(over, options));
  GACCD_ASSIGN_OR_RETURN(const auto copies, testing::DeviceCopies::Make(*comm));
  GACCD_RETURN_IF_ERROR(testing::RunConformance(*copies, arguments.suite));
  std::printf("rank %d of %d on GPU %d (%s): all cases passed\n", over.rank(), over.size(),
              gpu.device, gpu.name.c_str());
  return over.Barrier();
}

Status RunCases(const Arguments& arguments) {
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session,
                         MpiSession::Start({}, ProcessEnvironment()));
  CommOptions options;
  options.bound = std::chrono::seconds(60);
  GACCD_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> over, MakeMpi(*session, options));
  Status status = RunOn(*over, arguments);
  if (status.ok()) return status;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  over->Abort(static_cast<int>(status.kind()));
  return status;
}

}  // namespace
}  // namespace gaccd

int main(int argc, char** argv) {
  if (const auto gpus = gaccd::FindGpus(); !gpus.ok()) {
    std::printf("skipped: %s\n", gpus.status().message().c_str());
    const char* required = std::getenv("GACCD_GPU_REQUIRED");
    return required != nullptr && std::string_view(required) == "1" ? 1 : gaccd::kSkipped;
  }
  const gaccd::Status status = gaccd::RunCases(gaccd::Read(argc, argv));
  return status.ok() ? 0 : static_cast<int>(status.kind());
}
