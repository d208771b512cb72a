#include "daemon/device/cuda/time_work.h"

#include <algorithm>

#include "daemon/device/cuda/cuda_graph.h"

namespace gaccd {
namespace {

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

}  // namespace gaccd
