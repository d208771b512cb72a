// One update of all parameters: every array is read once and written once, 16 bytes at a time.
// Compiled without fused multiply-adds (CMakeLists.txt), so that the bits are the CPU's.
#include "daemon/device/cuda/launch.h"
#include "daemon/optim/kernels_cuda.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr int kWidth = 4;  // floats in 16 bytes

__device__ inline std::int64_t Thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// What one thread has of an array with `elements` values: kWidth of them, or the last few, or none.
struct Part {
  std::int64_t first;
  int count;
};
__device__ inline Part PartOf(std::int64_t elements) {
  const std::int64_t first = Thread() * kWidth;
  const std::int64_t left = elements - first;
  return {first, left >= kWidth ? kWidth : static_cast<int>(left > 0 ? left : 0)};
}
__device__ inline void LoadPart(const float* from, Part part, float (&values)[kWidth]) {
  if (part.count == kWidth) {
    Load<Use::kStream>(from + part.first, values);
  } else {
    for (int v = 0; v < kWidth; ++v) values[v] = v < part.count ? from[part.first + v] : 0.0F;
  }
}
__device__ inline void StorePart(float* to, Part part, const float (&values)[kWidth]) {
  if (part.count == kWidth) {
    Store<Use::kStream>(to + part.first, values);
  } else {
    for (int v = 0; v < part.count; ++v) to[part.first + v] = values[v];
  }
}
__device__ inline void StoreBf16(Bf16* to, Part part, const float (&values)[kWidth]) {
  if (to == nullptr) return;
  if (part.count == kWidth) {
    *reinterpret_cast<uint2*>(to + part.first) =
        uint2{PackBf16(values[0], values[1]), PackBf16(values[2], values[3])};
  } else {
    for (int v = 0; v < part.count; ++v) to[part.first + v] = ToBf16(values[v]);
  }
}

__device__ inline void TellOverflow(const float (&parameters)[kWidth], UpdateControl* control) {
  bool finite = true;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) finite = finite && parameters[v] - parameters[v] == 0;
  if (!finite) control->overflowed = 1;
}

// All data is asked for before the verdict is looked at: one wait for memory instead of two.
template <SgdRule kRule>
__global__ void __launch_bounds__(kThreads)
    SgdKernel(float* params, const float* gradient, float* momentum, Bf16* copy,
              std::int64_t elements, UpdateControl* control) {
  const Part part = PartOf(elements);
  float p[kWidth];
  float g[kWidth];
  float m[kWidth];
  LoadPart(params, part, p);
  LoadPart(gradient, part, g);
  if constexpr (kRule != SgdRule::kPlain) LoadPart(momentum, part, m);
  SgdFactors f = control->wish.sgd;
  f.gradient_scale = control->verdict.gradient_scale;
  if (control->verdict.idle != 0) return;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    if constexpr (kRule == SgdRule::kPlain) {
      SgdUpdate(f, g[v], &p[v]);
    } else if constexpr (kRule == SgdRule::kMomentum) {
      SgdMomentumUpdate(f, g[v], &p[v], &m[v]);
    } else {
      SgdNesterovUpdate(f, g[v], &p[v], &m[v]);
    }
  }
  StorePart(params, part, p);
  if constexpr (kRule != SgdRule::kPlain) StorePart(momentum, part, m);
  StoreBf16(copy, part, p);
  TellOverflow(p, control);
}

__global__ void __launch_bounds__(kThreads)
    AdamWKernel(float* params, const float* gradient, float* first, float* second, Bf16* copy,
                std::int64_t elements, UpdateControl* control) {
  const Part part = PartOf(elements);
  float p[kWidth];
  float g[kWidth];
  float m[kWidth];
  float s[kWidth];
  LoadPart(params, part, p);
  LoadPart(gradient, part, g);
  LoadPart(first, part, m);
  LoadPart(second, part, s);
  AdamWFactors f = control->wish.adamw;
  f.gradient_scale = control->verdict.gradient_scale;
  if (control->verdict.idle != 0) return;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) AdamWUpdate(f, g[v], &p[v], &m[v], &s[v]);
  StorePart(params, part, p);
  StorePart(first, part, m);
  StorePart(second, part, s);
  StoreBf16(copy, part, p);
  TellOverflow(p, control);
}

LaunchShape ShapeFor(std::int64_t elements) {
  return {BlocksFor(elements, static_cast<std::int64_t>(kThreads) * kWidth), kThreads};
}

}  // namespace

Status EnqueueSgd(cudaStream_t stream, SgdRule rule, const CudaOptimizer::Buffers& buffers,
                  UpdateControl* control) {
  auto* kernel = rule == SgdRule::kPlain      ? SgdKernel<SgdRule::kPlain>
                 : rule == SgdRule::kMomentum ? SgdKernel<SgdRule::kMomentum>
                                              : SgdKernel<SgdRule::kNesterov>;
  return Launch(kernel, ShapeFor(buffers.elements), stream, "sgd", buffers.parameters,
                buffers.gradient, buffers.state, static_cast<Bf16*>(buffers.bf16_copy),
                buffers.elements, control);
}

// The second moments begin where the first ones end; the kernel wants both aligned to 16 bytes.
Status EnqueueAdamW(cudaStream_t stream, const CudaOptimizer::Buffers& buffers,
                    UpdateControl* control) {
  return Launch(AdamWKernel, ShapeFor(buffers.elements), stream, "adamw", buffers.parameters,
                buffers.gradient, buffers.state, buffers.state + buffers.elements,
                static_cast<Bf16*>(buffers.bf16_copy), buffers.elements, control);
}

}  // namespace gaccd
