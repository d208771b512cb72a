// Sums are in f64, in an order given by the sizes and the GPU. If few values sum many elements,
// blocks sum parts, and a second kernel adds the parts in order.
#include <algorithm>
#include <utility>

#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/reduce_sum_plan.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

constexpr unsigned kAddThreads = 1024;
constexpr unsigned kAddWarps = kAddThreads / kWarp;

// Destination of sums: y, or if not null partials [parts, elements of y].
struct SumTarget {
  DType dtype;
  bool add;
  std::int64_t elements;

  __device__ void Put(void* y, std::int64_t i, double sum) const {
    if (dtype == DType::kF32) {
      float* to = static_cast<float*>(y) + i;
      *to = static_cast<float>(add ? static_cast<double>(*to) + sum : sum);
    } else if (dtype == DType::kBF16) {
      static_cast<Bf16*>(y)[i] = FromFloat<Bf16>(static_cast<float>(sum));
    } else if (dtype == DType::kF64) {
      static_cast<double*>(y)[i] = sum;
    } else {
      static_cast<Fp16*>(y)[i] = FromFloat<Fp16>(static_cast<float>(sum));
    }
  }
  __device__ void Put(double* partials, std::int64_t part, void* y, std::int64_t i,
                      double sum) const {
    if (partials != nullptr) {
      partials[part * elements + i] = sum;
    } else {
      Put(y, i, sum);
    }
  }
};

template <typename X, typename F, int kWidth>
__device__ inline void AddProducts(const Raw<X, kWidth>& x, const Raw<F, kWidth>& factor,
                                   bool has_factor, double (&sums)[kWidth]) {
  float of_x[kWidth];
  Unpack(x, of_x);
  if (has_factor) {
    float of_factor[kWidth];
    Unpack(factor, of_factor);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      sums[v] += static_cast<double>(of_x[v]) * static_cast<double>(of_factor[v]);
    }
  } else {
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sums[v] += static_cast<double>(of_x[v]);
  }
}

// Adds every stride-th unit of [first, end).
template <typename X, typename F, int kWidth>
__device__ inline void SumUnits(const X* x, const F* factor, const SumWalk& walk,
                                std::int64_t first, std::int64_t end, double (&sums)[kWidth]) {
  constexpr int kBatch = kWidth == 1 ? 4 : 2;  // loads in flight at a time
  const std::int64_t outer = first < walk.inner ? 0 : first / walk.inner;
  std::int64_t inner = first - outer * walk.inner;
  std::int64_t x_at = outer * walk.outer_steps[0] + inner * walk.inner_steps[0];
  std::int64_t factor_at = outer * walk.outer_steps[1] + inner * walk.inner_steps[1];
  for (std::int64_t unit = first; unit < end; unit += kBatch * walk.stride) {
    Raw<X, kWidth> of_x[kBatch] = {};
    Raw<F, kWidth> of_factor[kBatch] = {};
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (unit + b * walk.stride < end) {  // beyond the end the products are 0
        of_x[b] = LoadRaw<kWidth, Use::kStream>(x + x_at);
        if (factor != nullptr) {
          of_factor[b] = LoadRaw<kWidth, Use::kStream>(factor + factor_at);
        }
      }
      inner += walk.skipped;
      const bool wraps = inner >= walk.inner;
      inner -= wraps ? walk.inner : 0;
      x_at += walk.skip_steps[0] + (wraps ? walk.wrap_steps[0] : 0);
      factor_at += walk.skip_steps[1] + (wraps ? walk.wrap_steps[1] : 0);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      AddProducts<X, F, kWidth>(of_x[b], of_factor[b], factor != nullptr, sums);
    }
  }
}

template <typename X, typename F, int kWidth>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    SumColumnsKernel(const X* x, const F* factor, SumPlan plan, SumTarget target, double* partials,
                     void* y) {
  __shared__ double of_rows[kThreads * kWidth];
  const unsigned lane = threadIdx.x % plan.lanes;
  const unsigned row = threadIdx.x / plan.lanes;
  const unsigned tile_columns = plan.lanes * kWidth;
  const std::int64_t items = plan.kept.elements * plan.parts * plan.tiles;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t first_column = item % plan.tiles * tile_columns;
    const std::int64_t part = item / plan.tiles % plan.parts;
    const std::int64_t kept = item / plan.tiles / plan.parts;
    const std::int64_t column = first_column + lane * kWidth;
    double sums[kWidth] = {};
    if (row < plan.rows && column < plan.columns) {
      std::int64_t at[StridedNest::kOperands] = {};
      plan.kept.Place(kept, at);
      const F* times = factor == nullptr ? nullptr : factor + at[1] + column * plan.factor_step;
      SumUnits<X, F, kWidth>(x + at[0] + column, times, plan.walk,
                             plan.walk.units * part / plan.parts + row,
                             plan.walk.units * (part + 1) / plan.parts, sums);
    }
#pragma unroll
    for (int v = 0; v < kWidth; ++v) of_rows[threadIdx.x * kWidth + v] = sums[v];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < tile_columns; i += kThreads) {
      if (first_column + i >= plan.columns) break;
      double sum = 0;
      for (unsigned r = 0; r < plan.rows; ++r) sum += of_rows[r * tile_columns + i];
      target.Put(partials, part, y, kept * plan.columns + first_column + i, sum);
    }
    __syncthreads();
  }
}

template <typename X, typename F, int kWidth>
__global__ void __launch_bounds__(kThreads, kSumBlocks)
    SumRowsKernel(const X* x, const F* factor, SumPlan plan, SumTarget target, double* partials,
                  void* y) {
  const unsigned lane = threadIdx.x % plan.team;
  const unsigned teams = kThreads / plan.team;
  const std::int64_t items = plan.elements * plan.parts;
  std::int64_t item = static_cast<std::int64_t>(blockIdx.x) * teams + threadIdx.x / plan.team;
  for (; item < items; item += static_cast<std::int64_t>(gridDim.x) * teams) {
    const std::int64_t i = plan.parts == 1 ? item : item / plan.parts;
    const std::int64_t part = item - i * plan.parts;
    std::int64_t at[StridedNest::kOperands] = {};
    plan.kept.Place(i, at);
    double sums[kWidth] = {};
    SumUnits<X, F, kWidth>(x + at[0], factor == nullptr ? nullptr : factor + at[1], plan.walk,
                           plan.walk.units * part / plan.parts + lane,
                           plan.walk.units * (part + 1) / plan.parts, sums);
    double sum = sums[0];
#pragma unroll
    for (int v = 1; v < kWidth; ++v) sum += sums[v];
    const bool is_warp = plan.team == kWarp;
    sum = is_warp ? WarpSum(sum) : BlockSum(sum);
    if (lane == 0) target.Put(partials, part, y, i, sum);
    if (!is_warp) __syncthreads();  // BlockSum() reuses its shared memory
  }
}

// A block processes 32 values of y; its warps process consecutive parts.
__global__ void __launch_bounds__(kAddThreads)
    AddSumPartsKernel(const double* partials, std::int64_t parts, SumTarget target, void* y) {
  __shared__ double of_warps[kAddWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  double sum = 0;
  if (i < target.elements) {
#pragma unroll 8
    for (std::int64_t p = parts * warp / kAddWarps; p < parts * (warp + 1) / kAddWarps; ++p) {
      sum += partials[p * target.elements + i];
    }
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || i >= target.elements) return;
  for (unsigned w = 1; w < kAddWarps; ++w) sum += of_warps[w][lane];
  target.Put(y, i, sum);
}

// One thread per value.
template <typename X, typename F>
__global__ void __launch_bounds__(kThreads)
    SumAnyKernel(const X* x, const F* factor, SumNests nests, SumTarget target, void* y) {
  const StridedNest::Dimension inner = nests.summed.rank > 0
                                           ? nests.summed.dimensions[nests.summed.rank - 1]
                                           : StridedNest::Dimension{};
  for (std::int64_t i = GridIndex(); i < nests.kept.elements; i += GridStride()) {
    std::int64_t first[StridedNest::kOperands] = {};
    nests.kept.Place(i, first);
    double sum = 0;
    for (std::int64_t k = 0; k < nests.summed.elements; k += inner.size) {
      std::int64_t at[StridedNest::kOperands] = {first[0], first[1], 0};
      nests.summed.Place(k, at);
      for (std::int64_t j = 0; j < inner.size; ++j) {
        const float times = factor == nullptr ? 1.0F : ToFloat(factor[at[1] + j * inner.steps[1]]);
        sum += static_cast<double>(ToFloat(x[at[0] + j * inner.steps[0]])) *
               static_cast<double>(times);
      }
    }
    target.Put(y, i, sum);
  }
}

// Plans for loading one value and kVectorWidth values at a time.
struct SumWork {
  SumNests nests;
  SumPlan single, vector;
  SumTarget target;
};

template <typename X, typename F>
constexpr int kSumWidth = std::max(kVectorWidth<X>, kVectorWidth<F>);

template <typename X, typename F, int kWidth>
Status LaunchPlan(cudaStream_t stream, const SumPlan& plan, const SumTarget& target,
                  const Call& c) {
  auto* const partials = static_cast<double*>(plan.parts > 1 ? c.scratch : nullptr);
  GACCD_RETURN_IF_ERROR(Launch(
      plan.of == SumKind::kColumns ? SumColumnsKernel<X, F, kWidth> : SumRowsKernel<X, F, kWidth>,
      {plan.blocks, kThreads}, stream, "reduce_sum", c.in<X>(0), c.optional_in<F>(1), plan, target,
      partials, c.outputs[0]));
  if (partials == nullptr) return Status::Ok();
  return Launch(AddSumPartsKernel, {BlocksFor(plan.elements, kWarp), kAddThreads}, stream,
                "reduce_sum", partials, plan.parts, target, c.outputs[0]);
}

template <typename X, typename F>
Status LaunchSum(const KernelStream& on, const SumWork& work, SumTarget target, const Call& c) {
  target.add = c.add[0];
  if (work.single.of == SumKind::kAny) {
    return LaunchForEach(SumAnyKernel<X, F>, on, target.elements, "reduce_sum", c.in<X>(0),
                         c.optional_in<F>(1), work.nests, target, c.outputs[0]);
  }
  const bool aligned =
      work.vector.width > 1 && IsVectorAligned(c.inputs[0]) && IsVectorAligned(c.optional_in<F>(1));
  return aligned ? LaunchPlan<X, F, kSumWidth<X, F>>(on.stream, work.vector, target, c)
                 : LaunchPlan<X, F, 1>(on.stream, work.single, target, c);
}

// Calls run(X(), F()). REQUIRES: at most one 16-bit type.
template <typename Run>
auto WithSumTypes(DType x, DType factor, const Run& run) {
  return WithFloat(x == DType::kF32 ? factor : x, [&](auto t) {
    if (x == factor) return run(t, t);
    return x == DType::kF32 ? run(float(), t) : run(t, float());
  });
}

}  // namespace

KernelResult MakeReduceSumCuda(const CudaRequest& request) {
  const ValueSpec& x = request.inputs[0];
  const ValueSpec& factor = request.inputs.back();  // without a factor: x, for the strides
  const ValueSpec& y = request.outputs[0];
  const int width = WithSumTypes(x.dtype, factor.dtype, [](auto of_x, auto of_factor) {
    return kSumWidth<decltype(of_x), decltype(of_factor)>;
  });
  SumWork work;
  work.nests = MakeSumNests(x.shape, factor.shape, y.shape);
  work.single = PlanSum(work.nests, 1, request.on.multiprocessors);
  work.vector = PlanSum(work.nests, width, request.on.multiprocessors);
  work.target = {.dtype = y.dtype, .add = false, .elements = work.single.elements};
  return MakeCall(
      request,
      [work, on = request.on, types = std::pair(x.dtype, factor.dtype)](const Call& c) {
        return WithSumTypes(types.first, types.second, [&](auto of_x, auto of_factor) {
          return LaunchSum<decltype(of_x), decltype(of_factor)>(on, work, work.target, c);
        });
      },
      std::max(work.single.scratch_bytes(), work.vector.scratch_bytes()));
}

}  // namespace gaccd
