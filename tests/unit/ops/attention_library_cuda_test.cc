// Attention in bf16 and fp16 by a library against gaccd's own kernels in f32, on the same GPU:
// cuDNN on a real one (tests/gpu), and the stand-in's library on the stand-in.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/tensor/random.h"
#include "tests/gpu/gpu_test.h"
#include "tests/sanitized.h"
#include "tests/support/gpu_bench.h"

namespace gaccd {
namespace {

struct Case {
  std::int64_t sequences, heads, length, width;
  bool causal = false;
  std::vector<std::int32_t> lengths = {};  // empty: all are `length`
  bool packed = true;

  [[nodiscard]] std::int64_t rows() const { return sequences * length; }
  [[nodiscard]] std::int64_t columns() const { return heads * width; }
  [[nodiscard]] std::size_t parts() const { return packed ? 1 : 3; }
  // Of every part of the inputs and their gradients.
  [[nodiscard]] std::int64_t step() const { return (packed ? 3 : 1) * columns(); }
  [[nodiscard]] std::int64_t Known(std::int64_t row) const {
    if (lengths.empty()) return length;
    const auto given = lengths[static_cast<std::size_t>(row / length)];
    return std::clamp<std::int64_t>(given, 0, length);
  }
};

std::string ToText(const Case& c) {
  return StrCat(c.sequences, " x ", c.length, " rows, ", c.heads, " heads of ", c.width,
                c.causal ? ", causal" : "", c.lengths.empty() ? "" : ", lengths",
                c.packed ? "" : ", q k v apart");
}

// Other values for every seed, as `dtype` holds them.
std::vector<float> Values(std::int64_t count, std::uint64_t seed, DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double phase = static_cast<double>(seed) + 0.7 * static_cast<double>(i * i % 1009);
    values[i] = static_cast<float>(std::sin(phase));
  }
  return Stored(dtype, std::move(values));
}

struct Outcome {
  std::vector<float> y, lse, gradients;
  bool operator==(const Outcome&) const = default;
};

// Attention and its gradient, with everything they work on.
class Attentions {
 public:
  // values: the type that holds the inputs exactly.
  Attentions(CudaContext& context, DType dtype, const Case& c, DType values = DType::kBF16)
      : case_(c),
        lengths_(c.lengths.empty() ? std::vector<std::int32_t>(1) : c.lengths),
        dy_(dtype, Values(c.rows() * c.columns(), 9, values)),
        y_(dtype, static_cast<std::size_t>(c.rows() * c.columns())),
        lse_(static_cast<std::size_t>(c.rows() * c.heads)),
        kernels_(MakeCudaKernels(context)) {
    for (std::size_t part = 0; part < c.parts(); ++part) {
      const std::int64_t count = c.rows() * c.step();
      in_.push_back(std::make_unique<GpuFloats>(dtype, Values(count, part, values)));
      out_.push_back(std::make_unique<GpuFloats>(dtype, static_cast<std::size_t>(count)));
    }
    Prepare(dtype);
  }

  Status Enqueue() {
    GACCD_RETURN_IF_ERROR(forward_->Run({}));
    return backward_->Run({});
  }
  [[nodiscard]] Outcome Results() const {
    Outcome found{y_.Values(), lse_.Values(), {}};
    for (const auto& part : out_) {
      const std::vector<float> values = part->Values();
      found.gradients.insert(found.gradients.end(), values.begin(), values.end());
    }
    return found;
  }

 private:
  void Prepare(DType dtype) {
    const AttentionOptions options{
        .heads = case_.heads, .length = case_.length, .causal = case_.causal};
    std::vector<ValueSpec> specs(case_.parts(), {{case_.rows(), case_.step()}, dtype});
    std::vector<void*> inputs;
    for (const auto& part : in_) inputs.push_back(part->data());
    if (!case_.lengths.empty()) {
      specs.push_back({{case_.sequences}, DType::kI32});
      inputs.push_back(lengths_.data());
    }
    forward_ = Make(Attention(options), specs, inputs, {y_.data(), lse_.data()});
    const ValueSpec y{{case_.rows(), case_.columns()}, dtype};
    specs.insert(specs.begin(),
                 {y, y, {{case_.sequences, case_.heads, case_.length}, DType::kF32}});
    inputs.insert(inputs.begin(), {dy_.data(), y_.data(), lse_.data()});
    std::vector<void*> outputs;
    for (const auto& part : out_) outputs.push_back(part->data());
    backward_ = Make(AttentionGradient(options), specs, inputs, outputs);
  }
  std::unique_ptr<Kernel> Make(const Function& function, const std::vector<ValueSpec>& specs,
                               const std::vector<void*>& inputs,
                               const std::vector<void*>& outputs) {
    const std::vector<ValueSpec> made = function.Infer(specs).value();
    const std::vector<const float*> none(specs.size());
    auto kernel = kernels_->Make({function, specs, made, none});
    EXPECT_OK(kernel.status());
    scratch_.push_back(
        std::make_unique<GpuArray<char>>(static_cast<std::size_t>((*kernel)->scratch_bytes()) + 1));
    (*kernel)->Bind({inputs, outputs, scratch_.back()->data()});
    return *std::move(kernel);
  }

  Case case_;
  GpuArray<std::int32_t> lengths_;
  GpuFloats dy_, y_;
  GpuArray<float> lse_;
  std::vector<std::unique_ptr<GpuFloats>> in_, out_;
  std::vector<std::unique_ptr<GpuArray<char>>> scratch_;
  std::unique_ptr<KernelFactory> kernels_;
  std::unique_ptr<Kernel> forward_, backward_;
};

class AttentionLibrary : public testing::Test {
 protected:
  void SetUp() override {
    const Result<DnnFactory> library = DnnOfTest();
    if (!library.ok()) {
      PrintSkip("attention by cuDNN", library.status().message());
      GTEST_SKIP() << library.status().message();
    }
    own_ = MakeTestContext();
    by_library_ = MakeTestContext(*library);
    any_order_ = MakeTestContext(*library, {});
    ASSERT_TRUE(own_ != nullptr && by_library_ != nullptr && any_order_ != nullptr);
  }

  // By the library in 16 bits against own kernels in f32; any_order: not deterministic.
  void Compare(const Case& c, DType dtype = DType::kBF16, bool any_order = false) {
    SCOPED_TRACE(StrCat(ToText(c), ", ", Name(dtype), any_order ? ", any order" : ""));
    CudaContext& context = any_order ? *any_order_ : *by_library_;
    Attentions expected(*own_, DType::kF32, c, dtype);
    Attentions found(context, dtype, c, dtype);
    EXPECT_THAT(context.DrainWarnings(), testing::IsEmpty());
    EXPECT_OK(expected.Enqueue());
    EXPECT_OK(found.Enqueue());
    const Outcome reference = expected.Results();
    const Outcome outcome = found.Results();
    const double y = RelativeDifference(outcome.y, reference.y);
    const double lse = RelativeDifference(outcome.lse, reference.lse);
    const double gradients = RelativeDifference(outcome.gradients, reference.gradients);
    // fp16 keeps 3 bits more.
    const double finer = dtype == DType::kFP16 ? 0.25 : 1;
    EXPECT_LT(y, finer * kSame) << "y";
    EXPECT_LT(lse, kSameSums) << "lse";
    EXPECT_LT(gradients, finer * kSameGradients) << "gradients";
    worst_y_ = std::max(worst_y_, y);
    worst_gradients_ = std::max(worst_gradients_, gradients);
    ExpectNothingBehindTheLengths(c, outcome);
  }

  static void ExpectNothingBehindTheLengths(const Case& c, const Outcome& outcome) {
    for (std::int64_t row = 0; row < c.rows(); ++row) {
      if (row % c.length < c.Known(row)) continue;
      for (std::int64_t i = 0; i < c.columns(); ++i) {
        ASSERT_EQ(outcome.y[static_cast<std::size_t>(row * c.columns() + i)], 0) << row;
      }
      const auto parts = static_cast<std::int64_t>(c.parts());
      for (std::int64_t i = 0; i < parts * c.step(); ++i) {
        const std::int64_t at = (i / c.step() * c.rows() + row) * c.step() + i % c.step();
        ASSERT_EQ(outcome.gradients[static_cast<std::size_t>(at)], 0) << row;
      }
    }
  }

  // bf16 keeps 8 bits of y, and of the weights and their gradients on the way.
  static constexpr double kSame = 0.01;
  static constexpr double kSameGradients = 0.02;
  static constexpr double kSameSums = 1e-4;

  std::unique_ptr<CudaContext> own_, by_library_, any_order_;
  double worst_y_ = 0;
  double worst_gradients_ = 0;
};

TEST_F(AttentionLibrary, EqualsOwnKernelInF32) {
  for (const bool causal : {false, true}) {
    // 64 and 192: half a tile of cuDNN's is left over.
    for (const std::int64_t length : {2, 64, 77, 192}) Compare({2, 3, length, 64, causal});
    Compare({1, 2, 130, 128, causal});
    Compare({3, 2, 33, 8, causal, {}, /*packed=*/false});
  }
  PrintRow(
      "attention in bf16 by the library", !HasFailure(),
      StrCat("below ", kSame, " of y and ", kSameGradients, " of its gradients, compared with f32"),
      StrCat(worst_y_, " and ", worst_gradients_));
}

TEST_F(AttentionLibrary, Fp16EqualsOwnKernelInF32) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t length : {64, 77}) Compare({2, 3, length, 64, causal}, DType::kFP16);
    Compare({4, 2, 70, 16, causal, {70, 1, 33, 64}}, DType::kFP16);
  }
  PrintRow("attention in fp16 by the library", !HasFailure(), "a quarter of bf16's differences",
           StrCat(worst_y_, " and ", worst_gradients_));
}

TEST_F(AttentionLibrary, NondeterministicGradient) {
  for (const bool causal : {false, true}) {
    Compare({2, 3, 192, 64, causal}, DType::kBF16, /*any_order=*/true);
    Compare({4, 2, 70, 16, causal, {70, 1, 33, 64}}, DType::kFP16, /*any_order=*/true);
  }
  PrintRow("attention by the library, not deterministic", !HasFailure(), "as above",
           StrCat(worst_y_, " and ", worst_gradients_));
}

TEST_F(AttentionLibrary, LengthsOfSequences) {
  for (const bool causal : {false, true}) {
    for (const bool packed : {false, true}) {
      Compare({4, 2, 70, 16, causal, {70, 1, 33, 64}, packed});
      // None at all; and beyond the range, which counts as its end.
      Compare({4, 1, 40, 32, causal, {0, 17, -5, 99}, packed});
    }
  }
  PrintRow("attention in bf16 by the library, lengths", !HasFailure(),
           "as in f32, 0 beyond the lengths",
           StrCat(worst_y_, " and ", worst_gradients_, " compared with f32"));
}

TEST_F(AttentionLibrary, RepeatsBitForBitAlsoInGraph) {
  Attentions attentions(*by_library_, DType::kBF16,
                        tests::kSanitized ? Case{3, 2, 70, 64, true, {70, 50, 9}}
                                          : Case{3, 4, 200, 64, true, {200, 150, 9}});
  EXPECT_OK(attentions.Enqueue());
  const Outcome first = attentions.Results();
  EXPECT_OK(attentions.Enqueue());
  const bool again = attentions.Results() == first;
  const auto graph =
      CudaGraph::Capture(by_library_->compute(), [&] { return attentions.Enqueue(); });
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  bool in_graph = true;
  for (int launch = 0; launch < 2; ++launch) {
    EXPECT_OK(graph->Launch(by_library_->compute()));
    in_graph = in_graph && attentions.Results() == first;
  }
  PrintRow("attention in bf16 by the library, bits", again && in_graph,
           "the same again and in a graph",
           StrCat(again ? "the same" : "others", ", ", in_graph ? "the same" : "others"));
  EXPECT_TRUE(again);
  EXPECT_TRUE(in_graph);
}

TEST_F(AttentionLibrary, UnsupportedCaseUsesOwnKernelAndWarns) {
  const Case odd{2, 2, 50, 20};
  Attentions expected(*own_, DType::kF32, odd);
  Attentions found(*by_library_, DType::kBF16, odd);
  EXPECT_THAT(
      by_library_->DrainWarnings(),
      testing::AllOf(testing::SizeIs(2),
                     testing::Each(testing::AllOf(testing::StartsWith(std::string(kOwnAttention)),
                                                  testing::HasSubstr("2 heads of 20 values")))));
  EXPECT_OK(expected.Enqueue());
  EXPECT_OK(found.Enqueue());
  EXPECT_LT(RelativeDifference(found.Results().y, expected.Results().y), kSame);
}

}  // namespace
}  // namespace gaccd
