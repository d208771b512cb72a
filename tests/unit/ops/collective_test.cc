// What the collective functions refuse, and their arithmetic. Their gradients:
// tests/ranks/op_gradients.h.
#include "daemon/ops/collective/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "collectives/comm/threads.h"
#include "daemon/autograd/executor.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/ops/collective/collective_kernels.h"
#include "daemon/ops/cpu_kernels.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

ValueSpec F32(Shape shape) { return {std::move(shape), DType::kF32}; }

void ExpectRefused(const Status& status, ErrorKind kind, const std::string& part) {
  ASSERT_FALSE(status.ok()) << part;
  EXPECT_EQ(status.kind(), kind);
  EXPECT_THAT(status, HasMessage(HasSubstr(part)));
}

TEST(Collective, ShapesDependOnRowsPerRank) {
  const RowsByRank rows{.rows = {3, 0, 5}, .rank = 1};
  const auto infer = [](const Function& function, ValueSpec input) {
    return function.Infer(std::array{std::move(input)}).value()[0];
  };
  EXPECT_EQ(infer(AllGather(rows), F32({0, 4, 2})), F32({8, 4, 2}));
  EXPECT_EQ(infer(AllGather(rows), {{0}, DType::kI32}), (ValueSpec{{8}, DType::kI32}));
  EXPECT_EQ(infer(ReduceScatter(rows), F32({8, 4})), F32({0, 4}));
  EXPECT_EQ(infer(OwnRows(rows), F32({8, 4})), F32({0, 4}));
  EXPECT_EQ(infer(AllReduceSum(), F32({3, 4})), F32({3, 4}));
}

TEST(Collective, RefusesMismatches) {
  const auto refused = [](const Function& function, ValueSpec input, const std::string& part) {
    ExpectRefused(function.Infer(std::array{std::move(input)}).status(), ErrorKind::kConfig, part);
  };
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  refused(AllGather({{3, 5}, 0}), F32({4, 2}), "expected 3 rows, found [4, 2]");
  refused(AllGather({{3, 5}, 0}), F32({}), "expected 3 rows");
  refused(AllGather({{3, 5}, 2}), F32({3, 2}), "expected a rank below 2, found 2");
  refused(AllGather({{1, -2}, 0}), F32({1, 2}), "rank 1 has -2 rows");
  refused(AllGather({{kMax, 1}, 1}), F32({1, 2}), "rank 1 has 1 rows: negative, or too many");
  refused(ReduceScatter({{3, 5}, 0}), F32({3, 2}), "expected 8 rows, found [3, 2]");
  refused(ReduceScatter({{3}, 0}), {{3}, DType::kI32}, "expected f32 or f64, found i32 [3]");
  refused(AllReduceSum(), {{3}, DType::kBF16}, "expected f32 or f64, found bf16 [3]");
  refused(AllReduceMean(0), F32({3}), "at least 1, found 0");
  refused(Broadcast(-1), F32({3}), "found -1");
}

// The output of `function` on this rank of `comm`, of an input of these values.
Result<std::vector<float>> RunOn(Communicator* comm, std::shared_ptr<const Function> function,
                                 const Shape& shape, const std::vector<float>& x) {
  Graph graph;
  const ValueId input = graph.AddInput("x", F32(shape));
  GACCD_ASSIGN_OR_RETURN(const auto outputs, graph.Apply(std::move(function), {input}));
  const std::int64_t elements = Elements(graph.value(outputs[0]).spec.shape);
  graph.MarkOutput(outputs[0]);
  GACCD_ASSIGN_OR_RETURN(const auto context, CpuContext::Create());
  const auto kernels = MakeCpuKernels(*context, {}, comm);
  const FlatLayout layout;
  GACCD_ASSIGN_OR_RETURN(const auto executor,
                         Executor::Prepare(std::move(graph), {.layout = &layout}, *kernels));
  std::vector<std::byte> arena(static_cast<std::size_t>(executor->arena_bytes()));
  executor->Attach(arena.data(), nullptr);
  executor->BindInput(input, x.data());
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  const auto* y = executor->Output<float>(outputs[0]);
  return std::vector<float>(y, y + elements);
}

TEST(Collective, RequiresCommunicator) {
  ExpectRefused(RunOn(nullptr, std::make_shared<AllReduceSum>(), {2}, {1, 2}).status(),
                ErrorKind::kConfig, "'all_reduce_sum' needs a communicator");
  const auto comm = MakeSingle();
  ExpectRefused(
      RunOn(comm.get(), std::make_shared<AllGather>(RowsByRank{{1, 2}, 1}), {2}, {1, 2}).status(),
      ErrorKind::kInternal, "is for rank 1 of 2, this is rank 0 of 1");
  ExpectRefused(RunOn(comm.get(), std::make_shared<Broadcast>(1), {2}, {1, 2}).status(),
                ErrorKind::kInternal, "expected a root below 1, found rank 1");
}

// Also one rank whose communicator has no access to the memory.
TEST(Collective, SumsEachOfSeveralValues) {
  const auto sum = [](Communicator& comm, MemoryKind memory) -> Status {
    const AllReduceSum function;
    const std::array specs{F32({2}), F32({1})};
    const std::vector<const float*> parameters(specs.size());
    const auto copy = [](const void* from, std::size_t bytes, void* to) {
      std::memcpy(to, from, bytes);
      return Status::Ok();
    };
    GACCD_ASSIGN_OR_RETURN(const auto kernel,
                           MakeCollective({function, specs, specs, parameters},
                                          {.comm = &comm, .memory = memory, .copy = copy}));
    std::array first{1.0F, 2.0F, 0.0F, 0.0F};
    std::array second{3.0F, 0.0F};
    const std::array<void*, 2> inputs{&first[0], &second[0]};
    const std::array<void*, 2> outputs{&first[2], &second[1]};
    kernel->Bind({.inputs = inputs, .outputs = outputs});
    GACCD_RETURN_IF_ERROR(kernel->Run({}));
    const auto ranks = static_cast<float>(comm.size());
    EXPECT_THAT(first, testing::ElementsAre(1, 2, ranks, 2 * ranks));
    EXPECT_THAT(second, testing::ElementsAre(3, 3 * ranks));
    return Status::Ok();
  };
  ExpectOk(RunThreadRanks(3, {}, [&](Communicator& comm) { return sum(comm, MemoryKind::kHost); }));
  const auto comm = MakeSingle();
  ExpectOk(sum(*comm, MemoryKind::kCuda));
}

TEST(Collective, MeanDividesByCountNotByRanks) {
  ExpectOk(RunThreadRanks(3, {}, [](Communicator& comm) {
    const float mine = 1.0F + static_cast<float>(comm.rank());
    GACCD_ASSIGN_OR_RETURN(const std::vector<float> y,
                           RunOn(&comm, std::make_shared<AllReduceMean>(4), {2}, {mine, 10}));
    EXPECT_EQ(y, (std::vector<float>{6.0F / 4, 30.0F / 4}));
    return Status::Ok();
  }));
}

// 2^24 + 1 is no float; a quotient by 2^24 differs in the last place.
TEST(Collective, MeanDividesByCountsBeyondFloat) {
  const std::int64_t count = (std::int64_t{1} << 24) + 1;
  const auto comm = MakeSingle();
  std::vector<float> x;
  for (int i = 0; i < 1000; ++i) x.push_back(1.0F + static_cast<float>(i) / 1000.0F);
  const auto y = ValueOrThrow(RunOn(comm.get(), std::make_shared<AllReduceMean>(count), {1000}, x));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], static_cast<float>(static_cast<double>(x[i]) / static_cast<double>(count)));
  }
}

}  // namespace
}  // namespace gaccd
