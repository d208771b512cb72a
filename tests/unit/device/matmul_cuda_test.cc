#include "daemon/device/cuda/matmul_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/standin.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/matmul_support.h"

namespace gaccd {
namespace {

class MatmulCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    standin::Reset();
    standin::SetCublasLt();
    context_ = MakeContext({});
  }
  void TearDown() override {
    context_.reset();
    standin::Reset();  // stops the test when something is left
  }
  static std::unique_ptr<CudaContext> MakeContext(CudaNumerics numerics) {
    return CudaContext::Create({.numerics = numerics, .cublaslt = &standin::StandInCublasLt()})
        .value();
  }
  std::vector<double> Compute(const MatmulExample& example) {
    const MatmulOperands operands(example);
    const std::unique_ptr<MatmulCuda> matmul = MatmulCuda::Prepare(*context_, example.spec).value();
    EXPECT_TRUE(operands.Bind(*matmul).ok());
    EXPECT_OK(matmul->Run());
    return operands.Results(context_->compute());
  }

  std::unique_ptr<CudaContext> context_;
};

constexpr MatmulCudaSpec kForward{
    .m = 6, .n = 5, .k = 7, .transpose_b = true, .bias = true, .relu = true};
constexpr MatmulCudaSpec kWeightGradient{
    .m = 5, .n = 7, .k = 6, .transpose_a = true, .accumulate = true, .column_sums = true};

// All combinations of transposes, types, epilogues and accumulation, at odd sizes.
TEST_F(MatmulCudaTest, EqualsPlainLoop) {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1},  {1, 9, 4},   {17, 1, 3},
                                        {3, 2, 65}, {8, 16, 24}, {33, 10, 19}};
  int products = 0;
  for (unsigned bits = 0; bits < 1024; ++bits) {
    const auto bit = [&](unsigned i) { return ((bits >> i) & 1U) != 0; };
    const DType half = bit(8) ? DType::kFP16 : DType::kBF16;
    MatmulCudaSpec spec{.transpose_a = bit(0),
                        .transpose_b = bit(1),
                        .ab = bit(2) ? half : DType::kF32,
                        .c = bit(3) ? half : DType::kF32,
                        .bias = bit(4),
                        .relu = bit(5),
                        .accumulate = bit(6),
                        .column_sums = bit(7),
                        .column_sums_of_b = bit(9)};
    if (spec.ab == DType::kF32 && spec.c != DType::kF32) continue;  // cuBLASLt has none
    for (const auto& size : kSizes) {
      spec.m = size[0];
      spec.n = size[1];
      spec.k = size[2];
      if (!Check(spec).ok()) continue;
      const MatmulExample example = MakeExample(spec, bits);
      ASSERT_EQ(Compute(example), Expected(example)) << ToText(spec);
      ++products;
    }
  }
  EXPECT_EQ(products, 144 * 6);
}

// Both ways of GELU, with and without what is kept, in all types and layouts.
TEST_F(MatmulCudaTest, GeluEqualsPlainLoop) {
  for (unsigned bits = 0; bits < 96; ++bits) {
    const DType type = std::array{DType::kF32, DType::kBF16, DType::kFP16}[bits / 32];
    MatmulCudaSpec spec{.m = 19,
                        .n = 24,
                        .k = 9,
                        .transpose_a = (bits & 1U) != 0,
                        .transpose_b = (bits & 2U) != 0,
                        .ab = type,
                        .c = type,
                        .bias = (bits & 4U) != 0,
                        .gelu = static_cast<MatmulGelu>(bits / 8 % 4)};
    if (spec.gelu == MatmulGelu::kNone || !Check(spec).ok()) continue;
    const MatmulExample example = MakeExample(spec, bits);
    ExpectNear(Compute(example), example);
    if (HasFatalFailure()) return;
    spec.n = 7;
    EXPECT_EQ(Check(spec).ok(), !spec.has_aux()) << "aux wants a multiple of 8";
  }
}

TEST_F(MatmulCudaTest, RejectsAlgorithmWithWrongGelu) {
  for (const auto gelu : {MatmulGelu::kApply, MatmulGelu::kKeep, MatmulGelu::kGradient}) {
    for (const DType type : {DType::kBF16, DType::kFP16}) {
      const MatmulCudaSpec spec{
          .m = 16, .n = 32, .k = 45, .transpose_a = true, .ab = type, .c = type, .gelu = gelu};
      const MatmulExample example = MakeExample(spec, 1);
      standin::SetCublasLt({.drops_tail = 0});
      context_ = MakeContext({});
      ExpectNear(Compute(example), example);
      EXPECT_THAT(context_->choices().DrainWarnings(),
                  ElementsAre(HasSubstr("45 terms or computes GELU wrongly")))
          << ToText(spec);
    }
  }
  standin::SetCublasLt();
}

// Rows of A and C that lie further apart than they are long: what lies between is NaN, and stays.
TEST_F(MatmulCudaTest, StridedRows) {
  for (unsigned bits = 0; bits < 32; ++bits) {
    const auto bit = [&](unsigned i) { return ((bits >> i) & 1U) != 0; };
    MatmulCudaSpec spec{.m = 17,
                        .n = 13,
                        .k = 19,
                        .transpose_a = bit(0),
                        .transpose_b = bit(1),
                        .ab = DType::kBF16,
                        .c = bit(2) ? DType::kBF16 : DType::kF32,
                        .bias = bit(2),
                        .accumulate = !bit(2) && bit(3),
                        .column_sums = !bit(2) && bit(0)};
    spec.stride_a = bit(4) ? 64 : 0;
    spec.stride_c = bit(3) || !bit(4) ? 24 : 0;
    const MatmulExample example = MakeExample(spec, bits);
    ASSERT_EQ(Compute(example), Expected(example)) << ToText(spec);
  }
}

// With it, rows that are no multiple of 16 bytes take the algorithm that wants that.
TEST_F(MatmulCudaTest, StrideEnablesFastAlgorithm) {
  MatmulCudaSpec spec{
      .m = 16, .n = 13, .k = 24, .transpose_b = true, .ab = DType::kBF16, .c = DType::kBF16};
  ASSERT_TRUE(MatmulCuda::Prepare(*context_, spec).ok());
  EXPECT_EQ(standin::CountCublasLt().products_of[0], 0);
  spec.stride_c = 64;
  ASSERT_TRUE(MatmulCuda::Prepare(*context_, spec).ok());
  EXPECT_EQ(standin::CountCublasLt().products_of[0], 1);
}

// cuBLAS 13.1 on an H100, for 1 x 11528 x 8.
TEST_F(MatmulCudaTest, SplitsGradientIfEveryAlgorithmDropsTail) {
  standin::SetCublasLt({.drops_tail = standin::kAllAlgorithms});
  for (const DType type : {DType::kF32, DType::kBF16, DType::kFP16}) {
    for (const bool accumulate : {false, true}) {
      for (const std::int64_t stride : {0, 24}) {
        context_ = MakeContext({});
        MatmulCudaSpec spec{.m = 16,
                            .n = 32,
                            .k = 64 + 3,
                            .transpose_a = true,
                            .ab = type,
                            .accumulate = accumulate,
                            .stride_a = stride};
        const MatmulExample example = MakeExample(spec, 1);
        EXPECT_EQ(Compute(example), Expected(example)) << ToText(spec);
        spec.transpose_b = true;  // its last terms do not lie together
        EXPECT_THAT(MatmulCuda::Prepare(*context_, spec), HasKind(ErrorKind::kUnavailable));
      }
    }
  }
  standin::SetCublasLt();
}

// An algorithm that leaves out the last terms of a sum: seen before it is used, in C and in the
// column sums.
TEST_F(MatmulCudaTest, RejectsAlgorithmThatDropsTail) {
  for (const bool timed : {false, true}) {
    for (int algorithm = 0; algorithm < 3; ++algorithm) {
      standin::SetCublasLt({.drops_tail = algorithm, .fastest = algorithm});
      context_ = MakeContext({.time_algorithms = timed});
      for (const DType type : {DType::kF32, DType::kBF16, DType::kFP16}) {
        for (const int sums : {0, 1, 2}) {
          const MatmulCudaSpec spec{.m = 16,
                                    .n = 32,
                                    .k = 45,
                                    .transpose_a = true,
                                    .ab = type,
                                    .column_sums = sums == 1,
                                    .column_sums_of_b = sums == 2};
          const MatmulExample example = MakeExample(spec, 1);
          EXPECT_EQ(Compute(example), Expected(example)) << ToText(spec);
        }
      }
      const auto warnings = context_->choices().DrainWarnings();
      if (timed || algorithm == 0) {
        EXPECT_THAT(warnings, testing::SizeIs(9));
        EXPECT_THAT(warnings, testing::Each(HasSubstr("leaves out the last of its 45 terms")));
      }
    }
  }
  standin::SetCublasLt();
}

TEST_F(MatmulCudaTest, SumsOverwriteEvenIfProductAccumulates) {
  const MatmulExample example = MakeExample(kWeightGradient, 1);
  const MatmulOperands operands(example);
  const auto matmul = MatmulCuda::Prepare(*context_, example.spec).value();
  ASSERT_TRUE(operands.Bind(*matmul).ok());
  ASSERT_TRUE(matmul->Run().ok());
  ASSERT_TRUE(matmul->Run().ok());
  std::vector<double> expected = Expected(example);
  for (std::size_t i = 0; i < example.c.size(); ++i) {
    expected[i] = 2 * example.c[i] - double{example.c_before[i]};
  }
  EXPECT_EQ(operands.Results(context_->compute()), expected);
}

TEST_F(MatmulCudaTest, OnePreparedProductServesManyOperands) {
  const auto matmul = MatmulCuda::Prepare(*context_, kForward).value();
  for (unsigned seed = 0; seed < 3; ++seed) {
    const MatmulExample example = MakeExample(kForward, seed);
    const MatmulOperands operands(example);
    ASSERT_TRUE(operands.Bind(*matmul).ok());
    ASSERT_TRUE(matmul->Run().ok());
    EXPECT_EQ(operands.Results(context_->compute()), Expected(example));
  }
}

// The same product twice in one graph, with the operands of each recording.
TEST_F(MatmulCudaTest, CapturesAndReplays) {
  const MatmulExample one = MakeExample(kWeightGradient, 1);
  const MatmulExample two = MakeExample(kWeightGradient, 2);
  const MatmulOperands operands_one(one);
  const MatmulOperands operands_two(two);
  auto matmul = MatmulCuda::Prepare(*context_, kWeightGradient).value();
  {
    const auto graph = ValueOrThrow(CudaGraph::Capture(context_->compute(), [&] {
      GACCD_RETURN_IF_ERROR(operands_one.Bind(*matmul));
      GACCD_RETURN_IF_ERROR(matmul->Run());
      GACCD_RETURN_IF_ERROR(operands_two.Bind(*matmul));
      return matmul->Run();
    }));
    EXPECT_GE(graph.nodes(), 2U);
    matmul.reset();
    constexpr int kReplays = 3;
    for (int i = 0; i < kReplays; ++i) ASSERT_TRUE(graph.Launch(context_->compute()).ok());
    for (const auto& [example, operands] :
         {std::pair{&one, &operands_one}, std::pair{&two, &operands_two}}) {
      std::vector<double> expected = Expected(*example);
      for (std::size_t i = 0; i < example->c.size(); ++i) {
        const double before = example->c_before[i];
        expected[i] = before + kReplays * (example->c[i] - before);
      }
      EXPECT_EQ(operands->Results(context_->compute()), expected);
    }
  }
}

TEST_F(MatmulCudaTest, TryPrepareAllowsUnsupportedAndPrepareNamesSpec) {
  MatmulCudaSpec spec = kForward;
  spec.c = DType::kBF16;  // from f32 operands
  EXPECT_EQ(MatmulCuda::TryPrepare(*context_, spec).value(), nullptr);
  EXPECT_THAT(MatmulCuda::Prepare(*context_, spec), IsError(ErrorKind::kUnavailable, ToText(spec)));
  EXPECT_NE(MatmulCuda::TryPrepare(*context_, kForward).value(), nullptr);
}

// All ways in which the library says that it has no such epilogue; the last one only says so when
// the product runs.
TEST_F(MatmulCudaTest, HandlesMissingColumnSums) {
  for (const standin::CublasLtOptions& options :
       {standin::CublasLtOptions{.not_supported = {CUBLASLT_EPILOGUE_BGRADB}},
        standin::CublasLtOptions{.no_candidates = {CUBLASLT_EPILOGUE_BGRADB}},
        standin::CublasLtOptions{.refused = {CUBLASLT_EPILOGUE_BGRADB}}}) {
    standin::SetCublasLt(options);
    EXPECT_EQ(MatmulCuda::TryPrepare(*context_, kWeightGradient).value(), nullptr);
    EXPECT_THAT(MatmulCuda::Prepare(*context_, kWeightGradient),
                HasMessage(HasSubstr(ToText(kWeightGradient))));
    MatmulCudaSpec without = kWeightGradient;
    without.column_sums = false;
    EXPECT_NE(MatmulCuda::TryPrepare(*context_, without).value(), nullptr);
  }
}

// The stand-in's algorithm 3 adds partial sums in C as they arrive.
TEST_F(MatmulCudaTest, DeterministicExcludesSumsInAnyOrder) {
  constexpr MatmulCudaSpec kSmall{.m = 6, .n = 5, .k = 64};
  context_ = MakeContext({.time_algorithms = true});
  standin::SetCublasLt({.fastest = 3});
  ASSERT_TRUE(MatmulCuda::Prepare(*context_, kSmall).ok());
  EXPECT_GT(standin::CountCublasLt().products_of[3], 0);
  MatmulCudaSpec bf16 = kSmall;  // whose partial sums would be bf16
  bf16.ab = bf16.c = DType::kBF16;
  standin::SetCublasLt({.fastest = 3});
  ASSERT_TRUE(MatmulCuda::Prepare(*context_, bf16).ok());
  EXPECT_EQ(standin::CountCublasLt().products_of[3], 0);
  context_ = MakeContext({.deterministic = true, .time_algorithms = true});
  standin::SetCublasLt({.fastest = 3});
  ASSERT_TRUE(MatmulCuda::Prepare(*context_, kSmall).ok());
  EXPECT_EQ(standin::CountCublasLt().products, 1);
  EXPECT_EQ(standin::CountCublasLt().products_of[3], 0);
}

TEST_F(MatmulCudaTest, RefusesContradictorySpecs) {
  const auto with = [](auto change) {
    MatmulCudaSpec spec = kForward;
    change(spec);
    return spec;
  };
  using Spec = MatmulCudaSpec;
  for (const Spec& spec :
       {with([](Spec& s) { s.m = 0; }), with([](Spec& s) { s.n = -1; }),
        with([](Spec& s) { s.k = 0; }), with([](Spec& s) { s.ab = DType::kF64; }),
        with([](Spec& s) { s.c = DType::kI32; }), with([](Spec& s) { s.accumulate = true; }),
        with([](Spec& s) { s.stride_a = s.k; }), with([](Spec& s) { s.stride_c = s.n - 1; }),
        with([](Spec& s) { s.column_sums = s.transpose_a = true; }),
        Spec{.m = 1, .n = 1, .k = 1, .column_sums = true},
        Spec{.m = 1, .n = 1, .k = 1, .transpose_b = true, .column_sums_of_b = true},
        with([](Spec& s) { s.gelu = MatmulGelu::kApply; }),  // and ReLU
        Spec{
            .m = 1, .n = 8, .k = 1, .c = DType::kBF16, .bias = true, .gelu = MatmulGelu::kGradient},
        Spec{.m = 1, .n = 8, .k = 1, .accumulate = true, .gelu = MatmulGelu::kApply},
        Spec{.m = 8,
        .n = 9,
        .k = 8,
        .ab = DType::kBF16,
        .c = DType::kBF16,
        .gelu = MatmulGelu::kKeep},
        Spec{.m = 8, .n = 8, .k = 8, .gelu = MatmulGelu::kKeep},
        Spec{.m = 1,
        .n = 1,
        .k = 1,
        .transpose_a = true,
        .column_sums = true,
        .column_sums_of_b = true},
        Spec{.m = 1, .n = 1, .k = 1, .ab = DType::kBF16, .c = DType::kBF16, .accumulate = true}}) {
    EXPECT_THAT(MatmulCuda::Prepare(*context_, spec), IsError(ErrorKind::kInternal, ToText(spec)))
        << ToText(spec);
    EXPECT_FALSE(MatmulCuda::TryPrepare(*context_, spec).ok());
  }
}

TEST_F(MatmulCudaTest, ChecksPointers) {
  const auto matmul = MatmulCuda::Prepare(*context_, kForward).value();
  EXPECT_THAT(matmul->Run(), HasMessage(HasSubstr("before Bind()")));
  const DeviceBuffer buffer = DeviceBuffer::Allocate(4096, "operands").value();
  std::byte* const p = buffer.as<std::byte>();
  EXPECT_TRUE(matmul->Bind(p, p + 1024, p + 2048 + 16, p + 3072, nullptr).ok());
  for (const Status& status :
       {matmul->Bind(p + 32, p, p, p, nullptr), matmul->Bind(p, nullptr, p, p, nullptr),
        matmul->Bind(p, p, p + 8, p, nullptr), matmul->Bind(p, p, nullptr, p, nullptr),
        matmul->Bind(p, p, p, p + 4, nullptr)}) {
    EXPECT_THAT(status, IsError(ErrorKind::kInternal, "multiple of"));
  }
  const auto gelu = MatmulCuda::Prepare(*context_, {.m = 1,
                                                    .n = 8,
                                                    .k = 8,
                                                    .ab = DType::kBF16,
                                                    .c = DType::kBF16,
                                                    .gelu = MatmulGelu::kKeep})
                        .value();
  EXPECT_TRUE(gelu->Bind(p, p + 1024, nullptr, p + 2048, nullptr, p + 3072).ok());
  for (void* aux : {static_cast<void*>(nullptr), static_cast<void*>(p + 3072 + 16)}) {
    EXPECT_THAT(gelu->Bind(p, p, nullptr, p, nullptr, aux), HasMessage(HasSubstr("aux")));
  }
}

TEST_F(MatmulCudaTest, PreparesWorkspaceOnly) {
  EXPECT_EQ(context_->device_bytes(), std::int64_t{CudaContext::kWorkspaceBytes});
  EXPECT_EQ(standin::LiveBytes(0), context_->device_bytes());
  const auto matmul = MatmulCuda::Prepare(*context_, kForward).value();
  EXPECT_EQ(standin::LiveBytes(0), context_->device_bytes());
}

// No room to try algorithms: the product works nevertheless, with a warning.
TEST_F(MatmulCudaTest, UsesFirstAlgorithmWithoutMemoryForTrial) {
  context_.reset();
  standin::Reset({.memory_bytes = CudaContext::kWorkspaceBytes + (1 << 20)});
  context_ = MakeContext({});
  const MatmulCudaSpec large{.m = 512, .n = 512, .k = 512};
  ASSERT_OK(MatmulCuda::Prepare(*context_, large));
  EXPECT_THAT(context_->choices().DrainWarnings(),
              testing::ElementsAre(
                  testing::AllOf(HasSubstr("not tried"), HasSubstr("no memory on the GPU"))));
  EXPECT_EQ(context_->choices().timed(), 0);
}

// Its last terms would be those of samples.
TEST_F(MatmulCudaTest, SplitsWeightGradientWithoutMemoryForTrial) {
  context_.reset();
  standin::Reset({.memory_bytes = CudaContext::kWorkspaceBytes + (1 << 20)});
  context_ = MakeContext({});
  MatmulCudaSpec gradient{.m = 512, .n = 512, .k = 512, .transpose_a = true};
  EXPECT_NE(MatmulCuda::TryPrepare(*context_, gradient).value(), nullptr);
  gradient.k += 8;
  EXPECT_EQ(MatmulCuda::TryPrepare(*context_, gradient).value(), nullptr);
  EXPECT_OK(MatmulCuda::Prepare(*context_, gradient));
}

TEST_F(MatmulCudaTest, NoMemoryForWorkspaceIsAnError) {
  context_.reset();
  standin::Reset({.memory_bytes = 1 << 20});
  EXPECT_THAT(CudaContext::Create({.cublaslt = &standin::StandInCublasLt()}),
              IsError(ErrorKind::kOs, "cuBLASLt's workspace: wanted 33554432"));
}

TEST_F(MatmulCudaTest, ComparesPlanWithFreeMemory) {
  context_.reset();
  standin::Reset({.memory_bytes = std::size_t{1} << 30});
  context_ = MakeContext({});
  DeviceMemory plan;
  const std::int64_t room = (std::int64_t{1} << 30) - context_->device_bytes();
  plan.Add("activations", room - DeviceMemory::kReserveBytes);
  EXPECT_TRUE(FitsOnGpu(plan).ok());
  plan.Add("activations", 1);
  EXPECT_THAT(FitsOnGpu(plan), HasKind(ErrorKind::kConfig));
  standin::FailCall("cudaMemGetInfo", 1, cudaErrorUnknown);
  EXPECT_THAT(FitsOnGpu(plan), HasKind(ErrorKind::kUnavailable));
}

TEST_F(MatmulCudaTest, Bf16CopiesOfWeights) {
  std::vector<float> master(64);
  std::vector<std::uint16_t> copy(64);
  EXPECT_EQ(context_->HalfCopy(master.data()), nullptr);
  context_->SetHalfCopy(master.data(), 64, copy.data());
  EXPECT_EQ(context_->HalfCopy(master.data()), copy.data());
  EXPECT_EQ(context_->HalfCopy(master.data() + 63), copy.data() + 63);
  EXPECT_EQ(context_->HalfCopy(master.data() + 64), nullptr);
  EXPECT_EQ(context_->HalfCopy(master.data() - 1), nullptr);
}

TEST_F(MatmulCudaTest, ContextSetsTheDevice) {
  context_.reset();
  standin::Reset({.devices = 3});
  context_ = CudaContext::Create({.device = 2, .cublaslt = &standin::StandInCublasLt()}).value();
  int device = 0;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 2);
  EXPECT_GT(context_->multiprocessors(), 0);
  EXPECT_EQ(std::set({context_->compute(), context_->reduce(), context_->copy()}).size(), 3U);
  context_.reset();
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
}

}  // namespace
}  // namespace gaccd
