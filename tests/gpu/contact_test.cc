// First contact with a GPU, in seconds: each case asks one thing that a stand-in cannot answer, and
// prints it as a row of tools/gpu-check's table. In the order of the file, cold: what loads lazily
// is loaded here for the first time.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "collectives/comm/nccl_comm.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/matmul_cuda.h"
#include "tests/gpu/contact/kernels.h"
#include "tests/gpu/gpu_test.h"
#include "tests/unit/device/matmul_support.h"

namespace gaccd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMillisecond = 1'000'000;  // ns

testing::AssertionResult IsOk(const Status& status) {
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.message();
}

std::string Milliseconds(double seconds) {
  return StrCat(static_cast<std::int64_t>(seconds * 1e3), " ms");
}

// One value in memory of the GPU.
class DeviceInt {
 public:
  DeviceInt() : memory_(DeviceBuffer::Allocate(sizeof(std::int32_t), "an integer")) {
    EXPECT_TRUE(IsOk(memory_.status()));
  }
  [[nodiscard]] std::int32_t* get() const { return memory_->as<std::int32_t>(); }
  // Waits for `stream`.
  [[nodiscard]] std::int32_t Read(cudaStream_t stream) const {
    std::int32_t value = -1;
    EXPECT_EQ(cudaMemcpyAsync(&value, get(), sizeof value, cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    return value;
  }

 private:
  Result<DeviceBuffer> memory_;
};

TEST(Contact, FirstKernelLaunchMayBeInsideCapture) {
  const auto start = Clock::now();
  auto stream = CudaStream::Create();
  ASSERT_TRUE(IsOk(stream.status()));
  const DeviceInt value;
  const auto graph = CudaGraph::Capture(
      stream->get(), [&] { return EnqueueFirstInCapture(stream->get(), value.get()); });
  const Status launched = graph.ok() ? graph->Launch(stream->get()) : graph.status();
  const std::int32_t found = launched.ok() ? value.Read(stream->get()) : -1;
  PrintRow("first launch inside a capture", launched.ok() && found == 7, "7",
           launched.ok() ? std::to_string(found) : launched.message());
  PrintFact(StrCat("first kernel after ", Milliseconds(SecondsSince(start))));
  EXPECT_TRUE(IsOk(launched));
  EXPECT_EQ(found, 7);
}

// What the overlap of reductions relies on: a wait on another stream for an event that is recorded
// inside a graph ends when the graph comes to the event, at every launch, not when it ends.
TEST(Contact, ExternalEventInGraphIsRecordedAtEveryLaunch) {
  auto compute = CudaStream::Create();
  auto other = CudaStream::Create(CudaStream::Priority::kHigh);
  auto mark = CudaEvent::Create();
  auto begin = CudaEvent::Create(CudaEvent::Kind::kTiming);
  auto seen = CudaEvent::Create(CudaEvent::Kind::kTiming);
  ASSERT_TRUE(compute.ok() && other.ok() && mark.ok() && begin.ok() && seen.ok());
  const DeviceInt before;
  const DeviceInt after;
  const auto graph = CudaGraph::Capture(compute->get(), [&]() -> Status {
    GACCD_RETURN_IF_ERROR(EnqueueSpin(compute->get(), 50 * kMillisecond));
    GACCD_RETURN_IF_ERROR(EnqueueAdd(compute->get(), before.get(), 1));
    GACCD_RETURN_IF_ERROR(CudaStatus(
        cudaEventRecordWithFlags(mark->get(), compute->get(), cudaEventRecordExternal), "mark"));
    GACCD_RETURN_IF_ERROR(EnqueueSpin(compute->get(), 200 * kMillisecond));
    return EnqueueAdd(compute->get(), after.get(), 1);
  });
  ASSERT_TRUE(IsOk(graph.status()));
  for (int launch = 1; launch <= 2; ++launch) {
    ASSERT_EQ(cudaEventRecord(begin->get(), compute->get()), cudaSuccess);
    ASSERT_TRUE(IsOk(graph->Launch(compute->get())));
    ASSERT_EQ(cudaStreamWaitEvent(other->get(), mark->get(), 0), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(seen->get(), other->get()), cudaSuccess);
    const std::int32_t counted_before = before.Read(other->get());
    const std::int32_t counted_after = after.Read(other->get());
    ASSERT_EQ(cudaStreamSynchronize(compute->get()), cudaSuccess);
    float ms = 0;
    ASSERT_EQ(cudaEventElapsedTime(&ms, begin->get(), seen->get()), cudaSuccess);
    const bool passed = counted_before == launch && counted_after == launch - 1;
    PrintRow(StrCat("event recorded inside a graph, launch ", launch), passed,
             StrCat(launch, " before it, ", launch - 1, " after it, at about 50 ms of 250"),
             StrCat(counted_before, ", ", counted_after, " at ", Milliseconds(ms / 1e3)));
    EXPECT_EQ(counted_before, launch);
    EXPECT_EQ(counted_after, launch - 1);
  }
}

TEST(Contact, Bf16ProductIsExact) {
  const CublasLtApi* api = CublasLtOfTest();
  if (const auto loaded = LoadCublasLt(); api == nullptr && loaded.ok()) api = *loaded;
  if (api == nullptr) {
    PrintSkip("bf16 product", "no cuBLASLt");
    GTEST_SKIP() << LoadCublasLt().status().message();
  }
  const auto start = Clock::now();
  const auto context = CudaContext::Create({.cublaslt = api});
  ASSERT_TRUE(IsOk(context.status()));
  const MatmulExample example = MakeExample({.m = 32,
                                             .n = 512,
                                             .k = 784,
                                             .transpose_b = true,
                                             .ab = DType::kBF16,
                                             .c = DType::kBF16,
                                             .bias = true},
                                            1);
  const MatmulOperands operands(example);
  const auto matmul = MatmulCuda::Prepare(**context, example.spec);
  ASSERT_TRUE(IsOk(matmul.status()));
  ASSERT_TRUE(IsOk(operands.Bind(**matmul)));
  ASSERT_TRUE(IsOk((*matmul)->Run()));
  const bool equal = operands.Results((*context)->compute()) == Expected(example);
  PrintRow("bf16 product 32 x 512 x 784, bias", equal, "the bits of the plain loop",
           equal ? "the same" : "others");
  PrintFact(StrCat("first product after ", Milliseconds(SecondsSince(start))));
  EXPECT_TRUE(equal);
}

// With one rank NCCL copies, without group, kernel or connection: what those cost is measured with
// two (nccl_test.py). Here: the order behind events and streams.
class ContactNccl : public testing::Test {
 protected:
  void SetUp() override {
    if (NcclOfTest() == nullptr && !LoadNccl().ok()) {
      PrintSkip("NCCL, one rank", "no NCCL");
      GTEST_SKIP() << LoadNccl().status().message();
    }
    over_ = MakeSingle();
    auto comm = MakeNccl(*over_, {.api = NcclOfTest()});
    if (!comm.ok()) PrintRow("NCCL, one rank", false, "a communicator", comm.status().message());
    ASSERT_TRUE(IsOk(comm.status()));
    comm_ = *std::move(comm);
  }

  std::unique_ptr<Communicator> over_;
  std::unique_ptr<Communicator> comm_;
};

TEST_F(ContactNccl, AllReduceAfterGraphEvent) {
  constexpr std::size_t kCount = std::size_t{1} << 20;
  auto compute = CudaStream::Create();
  auto reduce = CudaStream::Create(CudaStream::Priority::kHigh);
  auto mark = CudaEvent::Create();
  const auto in = DeviceBuffer::Allocate(kCount * sizeof(std::int32_t), "in");
  const auto out = DeviceBuffer::Allocate(kCount * sizeof(std::int32_t), "out");
  ASSERT_TRUE(compute.ok() && reduce.ok() && mark.ok() && in.ok() && out.ok());
  auto* const last = in->as<std::int32_t>() + kCount - 1;
  const auto graph = CudaGraph::Capture(compute->get(), [&]() -> Status {
    GACCD_RETURN_IF_ERROR(EnqueueSpin(compute->get(), 5 * kMillisecond));
    GACCD_RETURN_IF_ERROR(EnqueueAdd(compute->get(), last, 1));
    return CudaStatus(
        cudaEventRecordWithFlags(mark->get(), compute->get(), cudaEventRecordExternal), "mark");
  });
  ASSERT_TRUE(IsOk(graph.status()));
  int right = 0;
  for (int update = 1; update <= 5; ++update) {
    ASSERT_TRUE(IsOk(graph->Launch(compute->get())));
    ASSERT_EQ(cudaStreamWaitEvent(reduce->get(), mark->get(), 0), cudaSuccess);
    ASSERT_TRUE(IsOk(comm_->AllReduceSum({in->data(), kCount, DType::kI32, MemoryKind::kCuda},
                                         {out->data(), kCount, DType::kI32, MemoryKind::kCuda},
                                         reduce->handle())));
    std::int32_t found = 0;
    ASSERT_EQ(cudaMemcpyAsync(&found, out->as<std::int32_t>() + kCount - 1, sizeof found,
                              cudaMemcpyDeviceToHost, reduce->get()),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(reduce->get()), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(compute->get()), cudaSuccess);
    if (found == update) ++right;
  }
  PrintRow("all-reduce of one rank after a mark inside a graph", right == 5, "5 of 5 updates",
           StrCat(right, " of 5"));
  EXPECT_EQ(right, 5);
  EXPECT_TRUE(IsOk(comm_->Poll()));
}

// One rank cannot be left waiting in a collective: ranks_test.py shows that. Here: the call returns
// although a kernel runs for longer in front of the collective.
TEST_F(ContactNccl, DestroyDoesNotWaitForKernel) {
  auto stream = CudaStream::Create();
  const auto data = DeviceBuffer::Allocate(1 << 20, "data");
  const auto out = DeviceBuffer::Allocate(1 << 20, "out");
  ASSERT_TRUE(stream.ok() && data.ok() && out.ok());
  ASSERT_TRUE(IsOk(EnqueueSpin(stream->get(), 200 * kMillisecond)));
  ASSERT_TRUE(IsOk(comm_->AllReduceSum({data->data(), 1 << 18, DType::kF32, MemoryKind::kCuda},
                                       {out->data(), 1 << 18, DType::kF32, MemoryKind::kCuda},
                                       stream->handle())));
  const auto start = Clock::now();
  comm_.reset();
  const double seconds = SecondsSince(start);
  const cudaError_t error = cudaStreamSynchronize(stream->get());
  PrintRow("end of NCCL after a kernel of 200 ms", error == cudaSuccess, "no error, within 5 s",
           StrCat(cudaGetErrorName(error), " after ", Milliseconds(seconds)));
  EXPECT_EQ(error, cudaSuccess);
}

}  // namespace
}  // namespace gaccd
