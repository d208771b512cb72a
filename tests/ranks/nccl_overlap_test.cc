// Reductions beside the computation: buckets in one order on all ranks, each behind its gradients
// and in front of whoever reads the sums, and nothing waits on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/bucket/bucket_reducer.h"
#include "tests/ranks/nccl_ranks.h"

namespace gaccd {
namespace {

using testing::ResetGpus;
using testing::RunNcclRanks;

constexpr std::size_t kGradients = 12;
constexpr std::size_t kElements = 40;  // of each
constexpr std::size_t kCount = kGradients * kElements;
constexpr int kRanks = 3;

Result<BucketPlan> MakePlan() {
  std::vector<GradientSlot> slots;
  // Backward finishes the last gradient first.
  for (std::size_t g = 0; g < kGradients; ++g) {
    slots.push_back({g * kElements, kElements, static_cast<int>(kGradients - g)});
  }
  return BucketPlan::Make(slots, kCount, 3 * kElements);
}

// A kernel that writes one gradient: value = (rank + 1) * (step + 1) + gradient.
Status WriteGradient(cudaStream_t stream, float* at, float value) {
  return CudaStatus(standin::Enqueue(stream, "a gradient",
                                     [=] {
                                       for (std::size_t i = 0; i < kElements; ++i) at[i] = value;
                                     },
                                     {{at, kElements * sizeof(float)}}),
                    "enqueue");
}

Status RunSteps(Communicator& comm, std::uint64_t seed, int steps) {
  GACCD_ASSIGN_OR_RETURN(const CudaStream compute, CudaStream::Create());
  GACCD_ASSIGN_OR_RETURN(const CudaStream reduce, CudaStream::Create(CudaStream::Priority::kHigh));
  GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(kCount * sizeof(float)));
  auto* const gradients = static_cast<float*>(memory->data());
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer sums,
                         DeviceBuffer::Allocate(kCount * sizeof(float), "sums"));
  GACCD_ASSIGN_OR_RETURN(BucketPlan plan, MakePlan());
  if (plan.buckets().size() != 4) return {ErrorKind::kInternal, "expected 4 buckets"};
  GACCD_ASSIGN_OR_RETURN(BucketReducer reducer,
                         BucketReducer::Make(comm, std::move(plan),
                                             {gradients, kCount, DType::kF32, MemoryKind::kCuda}));
  std::vector<CudaEvent> ready(kGradients);
  for (CudaEvent& event : ready) {
    GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create());
  }
  GACCD_ASSIGN_OR_RETURN(const CudaEvent reduced, CudaEvent::Create());

  std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
  std::vector<std::size_t> order(kGradients);
  std::vector<std::vector<float>> found(static_cast<std::size_t>(steps),
                                        std::vector<float>(kCount));
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  const std::int64_t waits = standin::Count().host_waits;
  for (int step = 0; step < steps; ++step) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);  // every rank finishes in another order
    for (const std::size_t g : order) {
      const auto value = static_cast<float>((comm.rank() + 1) * (step + 1)) + static_cast<float>(g);
      GACCD_RETURN_IF_ERROR(WriteGradient(compute.get(), gradients + g * kElements, value));
      (void)cudaEventRecord(ready[g].get(), compute.get());
      (void)cudaStreamWaitEvent(reduce.get(), ready[g].get(), 0);
      GACCD_RETURN_IF_ERROR(reducer.MarkReady(g, reduce.handle()));
    }
    GACCD_RETURN_IF_ERROR(reducer.NextCycle());
    (void)cudaEventRecord(reduced.get(), reduce.get());
    (void)cudaStreamWaitEvent(compute.get(), reduced.get(), 0);
    auto& seen = found[static_cast<std::size_t>(step)];
    GACCD_RETURN_IF_ERROR(CudaStatus(standin::Enqueue(compute.get(), "the optimiser",
                                                      [&seen, gradients] {
                                                        std::copy(gradients, gradients + kCount,
                                                                  seen.begin());
                                                      },
                                                      {{gradients, kCount * sizeof(float)}}),
                                     "enqueue"));
  }
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  EXPECT_EQ(standin::Count().host_waits, waits);
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(compute.get()), "wait"));
  GACCD_RETURN_IF_ERROR(comm.Poll());
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto expected = static_cast<float>(kRanks * (kRanks + 1) / 2 * (step + 1)) +
                            static_cast<float>(kRanks * (i / kElements));
      const float value = found[static_cast<std::size_t>(step)][i];
      if (value == expected) continue;
      return {ErrorKind::kInternal,
              StrCat("step ", step, ", element ", i, ": expected ", expected, ", found ", value)};
    }
  }
  return Status::Ok();
}

TEST(NcclOverlap, BucketsAreSummedBehindTheirGradientsInOneOrder) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    ResetGpus(kRanks);
    standin::SetDelays(seed, 300);
    const Status status = RunNcclRanks(
        kRanks, {}, [&](Communicator& comm, Communicator&) { return RunSteps(comm, seed, 4); });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(standin::CountNccl()["ncclAllReduce"], 4 * 4 * kRanks);
  }
}

// Many collectives in flight at once, on one stream, without a wait in between.
TEST(NcclOverlap, ManyInFlight) {
  ResetGpus(kRanks);
  const Status status = RunNcclRanks(kRanks, {}, [](Communicator& comm, Communicator&) -> Status {
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer data, DeviceBuffer::Allocate(8, "data"));
    const std::int64_t one = 1;
    (void)cudaMemcpyAsync(data.data(), &one, 8, cudaMemcpyHostToDevice, stream.get());
    const MutableBuffer buffer{data.data(), 1, DType::kI64, MemoryKind::kCuda};
    std::int64_t expected = 1;
    for (int i = 0; i < 30; ++i) {
      GACCD_RETURN_IF_ERROR(comm.AllReduceSum(buffer, buffer, stream.handle()));
      expected *= kRanks;
    }
    std::int64_t found = 0;
    (void)cudaMemcpyAsync(&found, data.data(), 8, cudaMemcpyDeviceToHost, stream.get());
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream.get()), "wait"));
    EXPECT_EQ(found, expected);
    return comm.Poll();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

// NCCL splits only what is idle: the stand-in stops the process otherwise.
TEST(NcclOverlap, SplitWaitsForWhatIsInFlight) {
  ResetGpus(2);
  const Status status = RunNcclRanks(2, {}, [](Communicator& comm, Communicator&) -> Status {
    GACCD_ASSIGN_OR_RETURN(const CudaStream stream, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(const DeviceBuffer data, DeviceBuffer::Allocate(8, "data"));
    GACCD_RETURN_IF_ERROR(CudaStatus(
        standin::Enqueue(stream.get(), "computation",
                         [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, {}),
        "enqueue"));
    const MutableBuffer buffer{data.data(), 2, DType::kF32, MemoryKind::kCuda};
    GACCD_RETURN_IF_ERROR(comm.AllReduceSum(buffer, buffer, stream.handle()));
    GACCD_ASSIGN_OR_RETURN(const auto part, comm.Split(0, 0));
    return comm.Poll();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gaccd
