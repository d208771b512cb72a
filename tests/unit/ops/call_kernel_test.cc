// How many operands a kernel of the GPU takes: as many as its node has. No GPU.
#include "daemon/ops/call_kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "daemon/autograd/executor.h"
#include "daemon/autograd/function.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// Four inputs of one shape, three outputs of it.
class FourToThree : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "four_to_three"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>(3, inputs[0]);
  }
};

// out[j] = in[0] + 10 in[1] + 100 in[2] + 1000 in[3] + j.
class Factory : public KernelFactory {
 public:
  KernelResult Make(const KernelRequest& request) override {
    return std::unique_ptr<Kernel>(
        std::make_unique<CallKernel>(request, [](const CallKernel::Call& call) {
          const float sum = *call.in<float>(0) + 10 * *call.in<float>(1) +
                            100 * *call.in<float>(2) + 1000 * *call.in<float>(3);
          for (std::size_t j = 0; j < 3; ++j) *call.out<float>(j) = sum + static_cast<float>(j);
          return Status::Ok();
        }));
  }
};

TEST(CallKernel, PassesFourInputsAndThreeOutputs) {
  const ValueSpec one{{1}, DType::kF32};
  Graph graph;
  std::vector<ValueId> inputs;
  for (const char* name : {"a", "b", "c", "d"}) inputs.push_back(graph.AddInput(name, one));
  const std::vector<ValueId> outputs = graph.Apply(std::make_shared<FourToThree>(), inputs).value();
  for (const ValueId output : outputs) graph.MarkOutput(output);
  const FlatLayout layout;
  Factory factory;
  auto executor = Executor::Prepare(std::move(graph), {.layout = &layout}, factory).value();
  alignas(64) std::array<std::byte, 1024> arena{};
  ASSERT_LE(executor->arena_bytes(), std::int64_t{sizeof arena});
  executor->Attach(arena.data(), nullptr);
  const std::array<float, 4> data = {1, 2, 3, 4};
  for (std::size_t i = 0; i < 4; ++i) executor->BindInput(inputs[i], &data[i]);
  ASSERT_TRUE(executor->Run(true).ok());
  for (std::size_t j = 0; j < 3; ++j) {
    EXPECT_EQ(*executor->Output<float>(outputs[j]), 4321 + static_cast<float>(j));
  }
}

TEST(CallKernel, RefusesAnotherNumberOfOperands) {
  const FourToThree function;
  const std::vector<ValueSpec> specs(4);
  int runs = 0;
  CallKernel kernel({function, specs, std::span(specs).first(3), {}}, [&](const CallKernel::Call&) {
    ++runs;
    return Status::Ok();
  });
  EXPECT_THAT(kernel.Run({}), HasKind(ErrorKind::kInternal));
  const std::vector<void*> memory(5);
  kernel.Bind({std::span(memory).first(5), std::span(memory).first(3)});
  EXPECT_THAT(kernel.Run({}), IsError(ErrorKind::kInternal, "5 and 3"));
  kernel.Bind({std::span(memory).first(4), std::span(memory).first(2)});
  EXPECT_THAT(kernel.Run({}), HasKind(ErrorKind::kInternal));
  EXPECT_EQ(runs, 0);
  kernel.Bind({std::span(memory).first(4), std::span(memory).first(3)});
  EXPECT_TRUE(kernel.Run({}).ok());
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace gaccd
