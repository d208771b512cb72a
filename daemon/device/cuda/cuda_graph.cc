#include "daemon/device/cuda/cuda_graph.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace gaccd {
namespace {

using OwnedGraph = CudaOwner<cudaGraph_t, cudaGraphDestroy>;

// Ends the capture also when the body throws.
class CaptureScope {
 public:
  explicit CaptureScope(cudaStream_t stream) : stream_(stream) {}
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
  ~CaptureScope() {
    if (open_) Drop();
  }

  Result<OwnedGraph> End() {
    open_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    OwnedGraph owned(graph);
    if (error != cudaSuccess) (void)cudaGetLastError();  // clear the error: it is reported here
    GACCD_RETURN_IF_ERROR(CudaStatus(error, "record a CUDA graph"));
    return owned;
  }

  void Drop() { (void)End(); }

 private:
  cudaStream_t stream_;
  bool open_ = true;
};

constexpr double kRoundMicroseconds = 200;  // long compared with the clock's resolution of 0.5 us
constexpr int kMaxRuns = 20;                // of the work per round
constexpr int kRounds = 3;
constexpr double kHopeless = 3;  // times the best: stop timing

class Clock {
 public:
  static Result<Clock> Create(cudaStream_t stream) {
    Clock clock(stream);
    GACCD_ASSIGN_OR_RETURN(clock.start_, CudaEvent::Create(CudaEvent::Kind::kTiming));
    GACCD_ASSIGN_OR_RETURN(clock.stop_, CudaEvent::Create(CudaEvent::Kind::kTiming));
    return clock;
  }

  Result<double> Microseconds(const std::function<Status()>& enqueue) {
    const char* const what = "time work of the GPU";
    float milliseconds = 0;
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(start_.get(), stream_), what));
    GACCD_RETURN_IF_ERROR(enqueue());
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(stop_.get(), stream_), what));
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(stop_.get()), what));
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), what));
    return 1e3 * double{milliseconds};
  }

 private:
  explicit Clock(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t stream_;
  CudaEvent start_, stop_;
};

}  // namespace

Result<CudaGraph> CudaGraph::Capture(cudaStream_t stream, const std::function<Status()>& body) {
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                                   "begin to record a CUDA graph"));
  CaptureScope capture(stream);
  GACCD_RETURN_IF_ERROR(body());
  GACCD_ASSIGN_OR_RETURN(const OwnedGraph graph, capture.End());

  CudaGraph result;
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaGraphGetNodes(graph.get(), nullptr, &result.nodes_),
                                   "count the nodes of a CUDA graph"));
  cudaGraphExec_t exec = nullptr;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaGraphInstantiate(&exec, graph.get(), 0), "prepare a CUDA graph"));
  result.exec_.reset(exec);
  // Otherwise the first launch uploads the graph to the GPU, which takes milliseconds.
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(exec, stream), "upload a CUDA graph"));
  return result;
}

Status CudaGraph::Launch(cudaStream_t stream) const {
  const cudaError_t error = cudaGraphLaunch(exec_.get(), stream);
  if (error != cudaSuccess) (void)cudaGetLastError();  // clear the error: it is reported here
  return CudaStatus(error, "launch a CUDA graph");
}

Result<double> TimeWork(cudaStream_t stream, const std::function<Status()>& enqueue, double best) {
  GACCD_ASSIGN_OR_RETURN(Clock clock, Clock::Create(stream));
  GACCD_ASSIGN_OR_RETURN(const double single, clock.Microseconds(enqueue));
  if (single > kHopeless * best && single > kRoundMicroseconds) return single;
  const int runs = static_cast<int>(
      std::clamp(kRoundMicroseconds / std::max(single, 1.0), 1.0, double{kMaxRuns}));
  GACCD_ASSIGN_OR_RETURN(const CudaGraph graph, CudaGraph::Capture(stream, [&] {
                           for (int i = 0; i < runs; ++i) GACCD_RETURN_IF_ERROR(enqueue());
                           return Status::Ok();
                         }));
  GACCD_RETURN_IF_ERROR(graph.Launch(stream));  // the first launch also uploads the graph
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    GACCD_ASSIGN_OR_RETURN(const double all,
                           clock.Microseconds([&] { return graph.Launch(stream); }));
    least = std::min(least, all / runs);
  }
  return least;
}

namespace {

// Truncates to 16 bits: the upper half is a bf16; the exponent of an fp16 is smaller by 112, but
// not negative.
std::uint16_t Truncated(float value, DType dtype) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (dtype == DType::kBF16) return static_cast<std::uint16_t>(bits >> 16U);
  constexpr std::uint32_t kOffset = 112U << 23U;
  const std::uint32_t size = std::max(bits & 0x7fffffffU, kOffset) - kOffset;
  return static_cast<std::uint16_t>((bits >> 16U & 0x8000U) | size >> 13U);
}

}  // namespace

Status FillRandom(const DeviceBuffer& buffer, DType dtype) {
  constexpr std::size_t kPattern = std::size_t{1} << 20;  // generated on the host, then repeated
  const std::size_t pattern = std::min(kPattern, buffer.bytes());
  std::vector<std::byte> host(pattern);
  std::mt19937 random(1);
  for (std::size_t at = 0; at + 4 <= pattern; at += SizeOf(dtype)) {
    const float value = static_cast<float>(random()) * 0x1p-31F - 1;
    if (dtype == DType::kF32) {
      std::memcpy(&host[at], &value, sizeof value);
    } else {
      const std::uint16_t half = Truncated(value, dtype);
      std::memcpy(&host[at], &half, sizeof half);
    }
  }
  auto* to = buffer.as<std::byte>();
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemcpy(to, host.data(), pattern, cudaMemcpyHostToDevice), "random data"));
  for (std::size_t done = pattern; done < buffer.bytes();) {
    const std::size_t piece = std::min(done, buffer.bytes() - done);
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpy(to + done, to, piece, cudaMemcpyDeviceToDevice), "random data"));
    done += piece;
  }
  return CudaStatus(cudaDeviceSynchronize(), "random data");
}

}  // namespace gaccd
