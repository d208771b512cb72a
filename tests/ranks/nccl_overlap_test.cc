// Reductions that overlap the computation: buckets in one order on all ranks, each after its
// gradients and before any reader of the sums, and nothing waits on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/bucket/bucket_plan.h"
#include "daemon/engine/update_graph.h"
#include "tests/ranks/nccl_ranks.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::ResetGpus;
using tests::RunNcclRanks;

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

// The streams of one rank, with what its gradients and their sums wait for.
struct Lanes {
  CudaStream compute;
  CudaStream reduce;
  std::vector<CudaEvent> ready;  // one a gradient
  CudaEvent reduced;

  static Result<Lanes> Make() {
    Lanes lanes;
    GACCD_ASSIGN_OR_RETURN(lanes.compute, CudaStream::Create());
    GACCD_ASSIGN_OR_RETURN(lanes.reduce, CudaStream::Create(CudaStream::Priority::kHigh));
    GACCD_ASSIGN_OR_RETURN(lanes.reduced, CudaEvent::Create());
    lanes.ready.resize(kGradients);
    for (CudaEvent& event : lanes.ready) {
      GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create());
    }
    return lanes;
  }
};

// The sums of the buckets, in the order of the plan.
struct Sums {
  BucketPlan plan;
  UpdateGraph graph;  // node b: bucket b

  static Result<Sums> Make(Communicator& comm, const Lanes& lanes, float* gradients) {
    GACCD_ASSIGN_OR_RETURN(BucketPlan plan, MakePlan());
    Sums sums{std::move(plan), {}};
    for (const Bucket& bucket : sums.plan.buckets()) {
      const MutableBuffer part{gradients + bucket.offset, bucket.elements, DType::kF32,
                               MemoryKind::kCuda};
      GACCD_RETURN_IF_ERROR(sums.graph.AllReduceSum(comm, {&part, 1}, lanes.reduce.handle()));
    }
    return sums;
  }
};

// Writes the gradients in the given order; each bucket is reduced as soon as it is complete.
Status EnqueueBackward(const Lanes& lanes, std::span<const std::size_t> order, int factor,
                       float* gradients, Sums* sums) {
  for (const std::size_t g : order) {
    const float value = static_cast<float>(factor) + static_cast<float>(g);
    GACCD_RETURN_IF_ERROR(WriteGradient(lanes.compute.get(), gradients + g * kElements, value));
    (void)cudaEventRecord(lanes.ready[g].get(), lanes.compute.get());
  }
  for (std::size_t bucket = 0; bucket < sums->plan.buckets().size(); ++bucket) {
    for (std::size_t g = 0; g < kGradients; ++g) {
      if (sums->plan.bucket_of()[g] != bucket) continue;
      (void)cudaStreamWaitEvent(lanes.reduce.get(), lanes.ready[g].get(), 0);
    }
    GACCD_RETURN_IF_ERROR(sums->graph.Run({bucket, bucket + 1}));
  }
  sums->graph.NextUpdate();
  return Status::Ok();
}

// The optimiser's place: copies the sums, after the reductions. `seen` must live until it ran.
Status EnqueueReader(const Lanes& lanes, const float* gradients, std::vector<float>* seen) {
  (void)cudaEventRecord(lanes.reduced.get(), lanes.reduce.get());
  (void)cudaStreamWaitEvent(lanes.compute.get(), lanes.reduced.get(), 0);
  return CudaStatus(
      standin::Enqueue(lanes.compute.get(), "the optimiser",
                       [=] { std::copy(gradients, gradients + kCount, seen->begin()); },
                       {{gradients, kCount * sizeof(float)}}),
      "enqueue");
}

Status CheckSums(const std::vector<std::vector<float>>& found) {
  for (std::size_t step = 0; step < found.size(); ++step) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto expected =
          static_cast<float>(kRanks * (kRanks + 1) / 2 * (step + 1) + kRanks * (i / kElements));
      if (found[step][i] == expected) continue;
      return {ErrorKind::kInternal, StrCat("step ", step, ", element ", i, ": expected ", expected,
                                           ", found ", found[step][i])};
    }
  }
  return Status::Ok();
}

Status RunSteps(Communicator& comm, std::uint64_t seed, int steps) {
  GACCD_ASSIGN_OR_RETURN(const Lanes lanes, Lanes::Make());
  GACCD_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(kCount * sizeof(float)));
  auto* const gradients = static_cast<float*>(memory->data());
  GACCD_ASSIGN_OR_RETURN(Sums sums, Sums::Make(comm, lanes, gradients));
  if (sums.graph.size() != 4) return {ErrorKind::kInternal, "expected 4 buckets"};
  std::mt19937_64 random(seed + static_cast<std::uint64_t>(comm.rank()));
  std::vector<std::size_t> order(kGradients);
  std::vector<std::vector<float>> found(static_cast<std::size_t>(steps),
                                        std::vector<float>(kCount));
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  const std::int64_t waits = standin::Count().host_waits;
  for (int step = 0; step < steps; ++step) {
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);  // every rank finishes in another order
    GACCD_RETURN_IF_ERROR(
        EnqueueBackward(lanes, order, (comm.rank() + 1) * (step + 1), gradients, &sums));
    GACCD_RETURN_IF_ERROR(EnqueueReader(lanes, gradients, &found[static_cast<std::size_t>(step)]));
  }
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  EXPECT_EQ(standin::Count().host_waits, waits);
  GACCD_RETURN_IF_ERROR(comm.Barrier());
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(lanes.compute.get()), "wait"));
  GACCD_RETURN_IF_ERROR(comm.Poll());
  return CheckSums(found);
}

TEST(NcclOverlap, SumsBucketsAfterTheirGradientsInOneOrder) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    ResetGpus(kRanks);
    standin::SetDelays(seed, 300);
    EXPECT_OK(RunNcclRanks(
        kRanks, {}, [&](Communicator& comm, Communicator&) { return RunSteps(comm, seed, 4); }));
    EXPECT_EQ(standin::CountNccl()["ncclAllReduce"], 4 * 4 * kRanks);
  }
}

// Many collectives in flight at once, on one stream, without a wait in between.
TEST(NcclOverlap, ManyInFlight) {
  ResetGpus(kRanks);
  ExpectOk(RunNcclRanks(kRanks, {}, [](Communicator& comm, Communicator&) -> Status {
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
  }));
}

// NCCL splits only what is idle: the stand-in stops the process otherwise.
TEST(NcclOverlap, SplitWaitsForOperationsInFlight) {
  ResetGpus(2);
  ExpectOk(RunNcclRanks(2, {}, [](Communicator& comm, Communicator&) -> Status {
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
  }));
}

}  // namespace
}  // namespace gaccd
