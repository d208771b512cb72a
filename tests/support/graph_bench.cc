#include "tests/support/graph_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "daemon/autograd/function.h"
#include "daemon/autograd/passes.h"
#include "daemon/device/cpu/packed_weights.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/product/bf16_products.h"
#include "daemon/tensor/random.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::uint64_t kSeed = 20240229;

std::uint64_t RandomBits(std::uint64_t seed, std::size_t i) {
  return StreamValue(StreamKey(kSeed, seed), i);
}

class WithOwnKernels : public KernelFactory {
 public:
  using OwnKernel = std::function<std::unique_ptr<Kernel>(const KernelRequest&)>;
  WithOwnKernels(OwnKernel own, std::unique_ptr<KernelFactory> others)
      : own_(std::move(own)), others_(std::move(others)) {}
  KernelResult Make(const KernelRequest& request) override {
    std::unique_ptr<Kernel> own = own_ ? own_(request) : nullptr;
    if (own != nullptr) return own;
    return others_->Make(request);
  }

 private:
  OwnKernel own_;
  std::unique_ptr<KernelFactory> others_;
};

}  // namespace

std::vector<float> RandomValues(std::uint64_t seed, std::size_t count, double limit) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double unit = static_cast<double>(RandomBits(seed, i) >> 40) * 0x1p-24;
    values[i] = static_cast<float>((2 * unit - 1) * limit);
  }
  return values;
}

double RelativeError(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

ValueId GraphBench::Parameter(const std::string& name, const Shape& shape, double limit) {
  auto index = ValueOrThrow(layout_.Add(name, shape));
  const FlatEntry& entry = layout_.entries()[index];
  parameters_.resize(static_cast<std::size_t>(layout_.size()));
  const auto values = RandomValues(1000 + index, static_cast<std::size_t>(entry.elements), limit);
  std::copy(values.begin(), values.end(), parameters_.begin() + entry.offset);
  return graph_.AddParameter(name, shape, index);
}

ValueId GraphBench::Input(const std::string& name, const Shape& shape) {
  return Input(name, shape, RandomValues(inputs_++, static_cast<std::size_t>(Elements(shape))));
}

ValueId GraphBench::Input(const std::string& name, const Shape& shape, std::vector<float> values) {
  const ValueId id = graph_.AddInput(name, {shape, DType::kF32});
  floats_.resize(static_cast<std::size_t>(id) + 1);
  floats_.back() = std::move(values);
  return id;
}

ValueId GraphBench::Labels(std::int64_t rows, std::int64_t classes) {
  label_input_ = graph_.AddInput("labels", {{rows}, DType::kI32});
  for (std::int64_t m = 0; m < rows; ++m) {
    const std::uint64_t bits = RandomBits(77, static_cast<std::size_t>(m));
    labels_.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(classes)));
  }
  return label_input_;
}

ValueId GraphBench::Ids(const std::string& name, const Shape& shape, std::int64_t limit) {
  std::vector<std::int32_t> values;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Elements(shape)); ++i) {
    const std::uint64_t bits = RandomBits(78 + ids_.size(), i);
    values.push_back(static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(limit)));
  }
  return Ids(name, shape, std::move(values));
}

ValueId GraphBench::Ids(const std::string& name, const Shape& shape,
                        std::vector<std::int32_t> values) {
  const ValueId id = graph_.AddInput(name, {shape, DType::kI32});
  ids_[id] = std::move(values);
  return id;
}

ValueId GraphBench::Longs(const std::string& name, std::vector<std::int64_t> values) {
  const auto size = static_cast<std::int64_t>(values.size());
  const ValueId id = graph_.AddInput(name, {{size}, DType::kI64});
  longs_[id] = std::move(values);
  return id;
}

ValueId GraphBench::Rows(ValueId x) {
  const Shape& shape = graph_.value(x).spec.shape;
  const std::int64_t width = Elements(Shape(shape.begin() + 1, shape.end()));
  return Apply(std::make_shared<Reshape>(Shape{shape[0], width}), {x});
}

std::vector<ValueId> GraphBench::ApplyAll(std::shared_ptr<const Function> function,
                                          std::vector<ValueId> inputs) {
  auto outputs = graph_.Apply(std::move(function), std::move(inputs));
  EXPECT_TRUE(outputs.ok()) << outputs.status().message();
  return outputs.ok() ? *outputs : std::vector<ValueId>{0};
}

void GraphBench::RecordTraining(ValueId objective) {
  objective_ = objective;
  seed_input_ = graph_.AddInput("weight", {{1}, DType::kF32});
  graph_.MarkOutput(objective);
  ASSERT_OK(RecordGradients(graph_, objective, seed_input_));
}

void GraphBench::PrepareTraining(ValueId objective, const Options& options) {
  RecordTraining(objective);
  Prepare(options);
}

void GraphBench::Prepare(const Options& options) {
  if (options.simplify) Simplify(graph_);
  if (options.fuse) FuseForCpu(graph_);
  ASSERT_OK(options.bf16 ? RoundProductsToBf16(graph_) : Status::Ok());
  if (options.fuse) FuseRoundedForCpu(graph_);
  gradients_.assign(parameters_.size(), 0.0F);
  context_ = ValueOrThrow(CpuContext::Create(options.f64_sums));
  kernels_ = std::make_unique<WithOwnKernels>(
      options.own_kernel,
      MakeCpuKernels(*context_, {.runs_per_update = options.packed ? 1000 : 1}));
  auto executor =
      Executor::Prepare(graph_, {&layout_, parameters_.data(), gradients_.data()}, *kernels_);
  ASSERT_TRUE(executor.ok()) << executor.status().message();
  executor_ = std::move(*executor);
  arena_ = *HostBuffer::Allocate(static_cast<std::size_t>(executor_->arena_bytes()), "arena");
  scratch_ = *HostBuffer::Allocate(static_cast<std::size_t>(executor_->scratch_bytes()), "scratch");
  executor_->Attach(arena_.data(), scratch_.data());
  for (std::size_t id = 0; id < floats_.size(); ++id) {
    if (!floats_[id].empty()) executor_->BindInput(static_cast<ValueId>(id), floats_[id].data());
  }
  for (const auto& [id, values] : ids_) executor_->BindInput(id, values.data());
  for (const auto& [id, values] : longs_) executor_->BindInput(id, values.data());
  if (label_input_ >= 0) executor_->BindInput(label_input_, labels_.data());
  if (seed_input_ >= 0) executor_->BindInput(seed_input_, &kWeight);
}

std::vector<float> GraphBench::RunAndRead(ValueId y) {
  graph_.MarkOutput(y);
  const std::int64_t count = Elements(graph_.value(y).spec.shape);
  Prepare({});
  Run();
  const auto* values = executor_->Output<float>(y);
  return {values, values + count};
}

void GraphBench::Run(bool first) {
  // What was there before does not matter: as floats these are NaN.
  for (HostBuffer* memory : {&arena_, &scratch_}) {
    std::fill_n(memory->data(), memory->bytes(), std::byte{0xff});
  }
  Status status = context_->packed_weights().Repack();
  ASSERT_TRUE(status.ok()) << status.message();
  // The run is the whole update: its own sums are all there is.
  for (std::size_t sum = 0; sum < executor_->update_sums(); ++sum) {
    status = executor_->RunSegment(sum, first);
    ASSERT_TRUE(status.ok()) << status.message();
    const Executor::UpdateSumPlace place = executor_->update_sum(sum);
    std::copy_n(place.own, place.elements, place.all);
  }
  const std::size_t sums = executor_->update_sums();
  status = sums > 0 ? executor_->RunSegment(sums, first) : executor_->Run(first);
  ASSERT_TRUE(status.ok()) << status.message();
}

std::span<float> GraphBench::Part(std::vector<float>& all, const std::string& name) const {
  const FlatEntry* entry = layout_.Find(name);
  EXPECT_NE(entry, nullptr) << name;
  return std::span<float>(all).subspan(static_cast<std::size_t>(entry->offset),
                                       static_cast<std::size_t>(entry->elements));
}

}  // namespace gaccd
