// The NCCL communicator does what every communicator must do: on real GPUs, with the real NCCL,
// over MPI. Run by mpirun:
//   nccl_conformance [share] [windows] [message_elements=N] [largest=N] [repeat=N] [gradients]
// share: ranks may have one GPU; every collective then takes milliseconds. windows: memory of
// Allocate() is a symmetric window. repeat: instead of the suite, N sums of 64 MB whose bits must
// be the same. gradients: instead, every collective function of graphs with its gradient, against
// finite differences. Exit code 0: all cases passed on this rank; 77: skipped, there is no GPU (1
// with GACCD_GPU_REQUIRED=1).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "collectives/bootstrap/gpus.h"
#include "collectives/bootstrap/mpi_session.h"
#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/nccl_settings.h"
#include "tests/ranks/conformance.h"
#include "tests/ranks/device_copies.h"
#include "tests/ranks/device_messages.h"
#include "tests/ranks/gpu_gradient_device.h"

namespace gaccd {
namespace {

constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE

struct Arguments {
  bool share = false;
  NcclOptions nccl;
  tests::ConformanceOptions suite{.largest = 20'000};
  int repeat = 0;
  bool gradients = false;
};

Arguments Read(int argc, char** argv) {
  Arguments arguments;
  constexpr std::string_view kMessage = "message_elements=";
  constexpr std::string_view kLargest = "largest=";
  constexpr std::string_view kRepeat = "repeat=";
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    if (text == "share") arguments.share = true;
    if (text == "gradients") arguments.gradients = true;
    if (text == "windows") arguments.nccl.windows = true;
    if (text.starts_with(kMessage)) {
      arguments.nccl.message_elements = std::stoul(text.substr(kMessage.size()));
    }
    if (text.starts_with(kLargest)) {
      arguments.suite.largest = std::stoul(text.substr(kLargest.size()));
    }
    if (text.starts_with(kRepeat)) arguments.repeat = std::stoi(text.substr(kRepeat.size()));
  }
  return arguments;
}

// Other random values on every rank, summed so often; prints the digest of the sums. Both buffers
// are the communicator's: with windows only such sums take symmetric kernels.
Status RepeatSums(Communicator& comm, int times) {
  constexpr std::size_t kCount = std::size_t{16} << 20;  // 64 MB of f32
  std::mt19937 random(static_cast<unsigned>(comm.rank()) + 1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(kCount);
  std::ranges::generate(values, [&] { return uniform(random); });
  GACCD_ASSIGN_OR_RETURN(const auto in, comm.Allocate(4 * kCount));
  GACCD_ASSIGN_OR_RETURN(const auto out, comm.Allocate(4 * kCount));
  GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpy(in->data(), values.data(), 4 * kCount, cudaMemcpyHostToDevice), "copy of values"));
  // From pageable memory it may return before the copy ends, and the stream does not wait for it.
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), "copy of values"));
  double first = 0, seconds = 0, host = 0;  // the others: of the calls alone in `host`
  for (int i = 0; i < times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum({in->data(), kCount, DType::kF32, MemoryKind::kCuda},
                                            {out->data(), kCount, DType::kF32, MemoryKind::kCuda},
                                            stream.handle()));
    if (i > 0) host += SecondsSince(start);
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.get()), "wait for a sum"));
    (i > 0 ? seconds : first) += SecondsSince(start);
    GACCD_RETURN_IF_ERROR(comm.Poll());
    GACCD_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpy(values.data(), out->data(), 4 * kCount, cudaMemcpyDeviceToHost), "copy back"));
    const std::string_view bytes(reinterpret_cast<const char*>(values.data()), 4 * kCount);
    std::printf("digest of the repeated sums: %zx\n", std::hash<std::string_view>{}(bytes));
  }
  if (times > 1) {
    const double micro = 1e6 / (times - 1);
    std::printf("a sum of 64 MB takes %.0f us, %.0f us of the host; the first one %.0f ms\n",
                micro * seconds, micro * host, 1e3 * first);
  }
  return Status::Ok();
}

Status CheckGradients(Communicator& comm, int gpu) {
  for (const tests::GradientCase& test : tests::GradientCases()) {
    const Status status = test.run({comm, tests::GpuGradientDevice(gpu)});
    if (!status.ok()) return {status.kind(), StrCat(test.name, ": ", status.message())};
  }
  return Status::Ok();
}

// Memory of a GPU that is taken by all its processes, when every rank has come here.
Result<std::int64_t> MiBTaken(Communicator& over, int device) {
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaSetDevice(device), "use the GPU"));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaFree(nullptr), "start CUDA"));
  GACCD_RETURN_IF_ERROR(over.Barrier());
  std::size_t free = 0;
  std::size_t total = 0;
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "memory of the GPU"));
  return static_cast<std::int64_t>((total - free) >> 20);
}

Status RunOn(Communicator& over, const Arguments& arguments) {
  NcclOptions options = arguments.nccl;
  options.gpu_sharing = arguments.share;
  GACCD_ASSIGN_OR_RETURN(const std::vector<GpuFacts> gpus, FindGpus());
  GACCD_ASSIGN_OR_RETURN(const GpuFacts gpu, AssignGpu(over, gpus, arguments.share));
  options.device = gpu.device;
  GACCD_ASSIGN_OR_RETURN(const std::int64_t before, MiBTaken(over, gpu.device));
  const auto start = std::chrono::steady_clock::now();
  GACCD_ASSIGN_OR_RETURN(const auto comm, MakeNccl(over, options));
  const double seconds = SecondsSince(start);
  if (arguments.repeat > 0) {
    GACCD_RETURN_IF_ERROR(RepeatSums(*comm, arguments.repeat));
  } else if (arguments.gradients) {
    GACCD_RETURN_IF_ERROR(CheckGradients(*comm, gpu.device));
  } else {
    GACCD_ASSIGN_OR_RETURN(const auto copies, tests::DeviceCopies::Make(*comm));
    for (const tests::ConformanceCase& test : tests::ConformanceCases()) {
      const Status status = test.run(*copies, arguments.suite);
      if (!status.ok()) return Status(status).WithContext(test.name);
      std::printf("after %.1f s: %s\n", SecondsSince(start), std::string(test.name).c_str());
      std::fflush(stdout);  // also where a later one hangs
    }
    // As the stages of a pipeline exchange them: more than NCCL's buffers hold, too.
    for (const std::size_t largest : {arguments.suite.largest, std::size_t{4} << 20}) {
      GACCD_RETURN_IF_ERROR(tests::CheckDeviceMessages(*comm, largest));
    }
  }
  GACCD_ASSIGN_OR_RETURN(const std::int64_t after, MiBTaken(over, gpu.device));
  std::printf("NCCL starts in %.0f ms, takes %lld MiB of the GPU for all its ranks\n",
              1e3 * seconds, static_cast<long long>(after - before));
  std::printf("rank %d of %d on GPU %d (%s): all cases passed\n", over.rank(), over.size(),
              gpu.device, gpu.name.c_str());
  return over.Barrier();
}

Status RunCases(const Arguments& arguments) {
  if (!arguments.nccl.windows) ApplySettings(MissingSettings(NcclSettings(), ProcessEnvironment()));
  if (arguments.share) ApplySettings(NcclSharingSettings(ProcessEnvironment(), HostAndProcess()));
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
