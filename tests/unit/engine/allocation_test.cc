// No allocation in the loop. The counter sees every malloc, calloc, realloc and mmap of this
// process, operator new and the C++ library included, except those made inside a call of oneDNN,
// which are not ours to change. So MicroStep() and ParametersChanged() must count zero.
//
// How: the allocation functions are replaced for the whole process (the dynamic linker finds ours
// first), and the linker's --wrap leads our calls of oneDNN through marks (CMakeLists.txt).
#include <dnnl.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/model_bench.h"
#include "tests/support/own_state.h"

namespace {
thread_local bool counting = false;
thread_local int in_onednn = 0;
thread_local int allocations = 0;

void Count() {
  if (counting && in_onednn == 0) ++allocations;
}
}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  Count();
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}

void* __real_mmap(void*, std::size_t, int, int, int, long);
void* __wrap_mmap(void* where, std::size_t bytes, int protection, int flags, int file, long at) {
  Count();
  return __real_mmap(where, bytes, protection, flags, file, at);
}

dnnl_status_t __real_dnnl_primitive_execute(const_dnnl_primitive_t, dnnl_stream_t, int,
                                            const dnnl_exec_arg_t*);
dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                            int count, const dnnl_exec_arg_t* arguments) {
  ++in_onednn;
  const dnnl_status_t status = __real_dnnl_primitive_execute(primitive, stream, count, arguments);
  --in_onednn;
  return status;
}

dnnl_status_t __real_dnnl_sgemm(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float*,
                                dnnl_dim_t, const float*, dnnl_dim_t, float, float*, dnnl_dim_t);
dnnl_status_t __wrap_dnnl_sgemm(char transpose_a, char transpose_b, dnnl_dim_t m, dnnl_dim_t n,
                                dnnl_dim_t k, float alpha, const float* a, dnnl_dim_t lda,
                                const float* b, dnnl_dim_t ldb, float beta, float* c,
                                dnnl_dim_t ldc) {
  ++in_onednn;
  const dnnl_status_t status =
      __real_dnnl_sgemm(transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  --in_onednn;
  return status;
}
}

namespace gaccd {
namespace {

template <typename F>
int CountAllocations(const F& body) {
  allocations = 0;
  counting = true;
  body();
  counting = false;
  return allocations;
}

TEST(AllocationTest, CounterDetectsAllocations) {
  std::unique_ptr<int> one;
  std::vector<float> many;
  std::string text;
  EXPECT_EQ(CountAllocations([&] { one = std::make_unique<int>(1); }), 1);
  EXPECT_EQ(CountAllocations([&] { many.resize(1000); }), 1);
  EXPECT_EQ(CountAllocations([&] { text.append(100, 'x'); }), 1);  // inside libstdc++.so
  EXPECT_EQ(CountAllocations([&] { (void)HostBuffer::Allocate(1 << 20, "test"); }), 1);
  EXPECT_EQ(CountAllocations([] {}), 0);
}

void NoAllocationInTheLoop(const std::vector<std::int64_t>& widths, LossKind loss,
                           std::int64_t micro_steps) {
  const Model model = MakeMlp(widths, loss);
  Samples samples(MakeSampleSpec(widths, loss), 64, 3);
  BenchTrainer trainer(model, {.micro_batches = {12, 13}, .micro_steps_per_update = micro_steps});
  Replica& replica = trainer.replica();
  bool ok = true;
  const auto update = [&](std::int64_t start) {
    // Both sizes, from other addresses every time, as a prefetcher brings them; and an empty one.
    ok = ok && replica.MicroStep(samples.View(start, 13), 0.04F, true).ok();
    ok = ok && replica.MicroStep(samples.View(start + 13, 12), 0.04F, false).ok();
    ok = ok && replica.MicroStep({}, 0.04F, false).ok();
    ok = ok && replica.MicroStep({}, 0.04F, true).ok();
    ok = ok && replica.ParametersChanged().ok();
  };
  EXPECT_EQ(CountAllocations([&] { update(0); }), 0) << "the very first micro-steps";
  EXPECT_EQ(CountAllocations([&] {
              for (std::int64_t start = 1; start < 20; ++start) update(start);
            }),
            0);
  EXPECT_TRUE(ok);
}

TEST(AllocationTest, NoneInClassifierLoop) {
  NoAllocationInTheLoop({100, 64, 48, 10}, LossKind::kSoftmaxCrossEntropy, 1);
}
TEST(AllocationTest, NoneInLoopWithPackedWeights) {
  NoAllocationInTheLoop({100, 64, 48, 10}, LossKind::kSoftmaxCrossEntropy, 8);
}
TEST(AllocationTest, NoneInRegressionLoop) {
  NoAllocationInTheLoop({10, 1}, LossKind::kMeanSquaredError, 1);
}

TEST(AllocationTest, NoneInStepOfAveragingOptimizer) {
  auto optimizer = tests::MakeOptimizer({.lr = 0.1, .kind = AdamWSpec{}, .ema = EmaSpec{0.9}},
                                        OptimizerRanges::One(100));
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().message();
  std::vector<float> parameters(100, 1);
  const std::vector<float> gradient(100, 2);
  EXPECT_EQ(CountAllocations([&] {
              for (int update = 0; update < 3; ++update) {
                (*optimizer)->Step(parameters, gradient, 0.1, 1);
                (*optimizer)->Average(parameters);
                (void)(*optimizer)->ExchangeAverages(parameters);
              }
            }),
            0);
}

}  // namespace
}  // namespace gaccd
