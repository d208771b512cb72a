// Every wait for an event in the engine on a GPU matters: without it, a delay gives other values.
// The linker leads the calls for events through functions of this program (--wrap in
// CMakeLists.txt): they leave one kind of wait out, and make late what it would have waited for.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "tests/ranks/cuda_engine_ranks.h"

namespace {

// In the order in which an update enqueues them.
enum class WaitKind {
  kNone,
  kFreeSlot,  // copy stream: the micro-step that read this slot is over
  kCopied,    // compute stream: the batch has been copied
  kBucket,    // reduction stream: the gradients of this bucket are computed
  kComputed,  // reduction stream: all is computed, losses and counts too
  kReduced,   // compute stream: all ranks have the sums
};
std::atomic<WaitKind> left_out = WaitKind::kNone;
std::atomic<int> late_ms = 0;  // delay of the work that MakeLate() delays
std::atomic<int> seen = 0;

// The streams of a rank, which is a thread: the first wait is that of a copy, the second that of
// the micro-step.
thread_local cudaStream_t copy_stream = nullptr;
thread_local cudaStream_t compute_stream = nullptr;
thread_local int reductions = 0;  // waits of the reduction stream in this update

// Weight and bias of three layers, each a message of its own, but for the last, which goes with the
// losses and counts.
constexpr int kBuckets = 5;

WaitKind ClassifyWait(cudaStream_t stream) {
  if (copy_stream == nullptr) copy_stream = stream;
  if (stream == copy_stream) {
    reductions = 0;
    return WaitKind::kFreeSlot;
  }
  if (compute_stream == nullptr) compute_stream = stream;
  if (stream != compute_stream) {
    return ++reductions <= kBuckets ? WaitKind::kBucket : WaitKind::kComputed;
  }
  return reductions > 0 ? WaitKind::kReduced : WaitKind::kCopied;
}

// After which wait, on its stream, comes the work that a missing one does not wait for. What
// kComputed misses comes after the mark of the last bucket instead.
WaitKind LateAfter(WaitKind missing) {
  switch (missing) {
    case WaitKind::kFreeSlot:
    case WaitKind::kBucket:
      return WaitKind::kCopied;
    case WaitKind::kCopied:
      return WaitKind::kFreeSlot;
    case WaitKind::kReduced:
      return WaitKind::kComputed;
    case WaitKind::kNone:
    case WaitKind::kComputed:
      break;
  }
  return WaitKind::kNone;
}

cudaError_t MakeLate(cudaStream_t stream) {
  const auto sleep = [](void*) {
    std::this_thread::sleep_for(std::chrono::milliseconds(late_ms.load()));
  };
  return cudaLaunchHostFunc(stream, sleep, nullptr);
}

}  // namespace

extern "C" {
cudaError_t __real_cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
cudaError_t __wrap_cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  const WaitKind kind = ClassifyWait(stream);
  if (kind == left_out) {
    ++seen;
    return cudaSuccess;
  }
  const cudaError_t error = __real_cudaStreamWaitEvent(stream, event, flags);
  return error == cudaSuccess && kind == LateAfter(left_out) ? MakeLate(stream) : error;
}

cudaError_t __real_cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned);
cudaError_t __wrap_cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                            unsigned flags) {
  const cudaError_t error = __real_cudaEventRecordWithFlags(event, stream, flags);
  return error == cudaSuccess && left_out == WaitKind::kComputed ? MakeLate(stream) : error;
}
}

namespace gaccd::tests {
namespace {

// Ragged micro-batches, all with samples on every rank.
const EngineCase kCase{.name = "race", .ranks = 2, .micro = 5, .target = 33, .updates = 12};

class CudaEngineRaces : public ::testing::Test {
 protected:
  void SetUp() override { ResetGpus(2); }
  void TearDown() override { left_out = WaitKind::kNone; }
};

// Whether any of some seeds gives other values than the CPU, or an error. With a wait missing the
// first one should: the others are for busy machines, where threads stop for milliseconds, and each
// doubles the delay.
bool Differs(WaitKind kind) {
  const auto expected = RunCpuRanks(kCase);
  late_ms = 5;
  for (std::uint64_t seed = 1; seed <= 8; ++seed, late_ms = 2 * late_ms) {
    ResetGpus(2);
    standin::SetDelays(seed, 300);
    left_out = kind;
    seen = 0;
    const auto found = RunCudaRanks(kCase, {.choice = {.bucket_elements = 1}});
    left_out = WaitKind::kNone;
    standin::SetDelays(0, 0);
    EXPECT_EQ(seen > 0, kind != WaitKind::kNone);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      // Negated, so that NaN counts as different.
      if (!found[rank].run.ok() ||
          !(Distance(found[rank].run->parameters, expected[rank]->parameters) <= kSame)) {
        return true;
      }
    }
  }
  return false;
}

TEST_F(CudaEngineRaces, FindsNoneIfNoWaitIsMissing) { EXPECT_FALSE(Differs(WaitKind::kNone)); }
TEST_F(CudaEngineRaces, DetectsMissingWaitForFreeSlot) {
  EXPECT_TRUE(Differs(WaitKind::kFreeSlot));
}
TEST_F(CudaEngineRaces, DetectsMissingWaitForCopy) { EXPECT_TRUE(Differs(WaitKind::kCopied)); }
TEST_F(CudaEngineRaces, DetectsReductionBeforeGradients) {
  EXPECT_TRUE(Differs(WaitKind::kBucket));
}
TEST_F(CudaEngineRaces, DetectsCountsSummedTooEarly) { EXPECT_TRUE(Differs(WaitKind::kComputed)); }
TEST_F(CudaEngineRaces, DetectsStepBeforeReduction) { EXPECT_TRUE(Differs(WaitKind::kReduced)); }

}  // namespace
}  // namespace gaccd::tests
