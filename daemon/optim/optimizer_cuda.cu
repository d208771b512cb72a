// One update of all parameters: every array is read and written once, 16 bytes at a time. Compiled
// without fused multiply-add (CMakeLists.txt), so that results are bit-identical to the CPU's.
#include "daemon/device/cuda/launch.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/optim/rules.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

constexpr int kWidth = 4;  // floats in 16 bytes
constexpr unsigned kStepThreads = kStepTileElements / kWidth;

// The data of one thread: kWidth values of parameters and gradient, or the last few, or none.
struct Part {
  std::int64_t first;
  std::int64_t state;  // index of their state
  int count;
  int group;
};
__device__ inline Part LocatePart(std::int64_t elements, const StepTile* tiles) {
  StepTile tile;
  if (tiles != nullptr) {
    tile = tiles[blockIdx.x];
  } else {
    tile.first = static_cast<std::int64_t>(blockIdx.x) * kStepTileElements;
    tile.state = tile.first;
    const std::int64_t left = elements - tile.first;
    tile.count = static_cast<std::int32_t>(left < kStepTileElements ? left : kStepTileElements);
  }
  const int offset = static_cast<int>(threadIdx.x) * kWidth;
  const int left = tile.count - offset;
  return {tile.first + offset, tile.state + offset,
          left >= kWidth ? kWidth
          : left > 0     ? left
                         : 0,
          tile.group};
}
__device__ inline Part StatePart(Part part) {
  part.first = part.state;
  return part;
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
template <typename Half>
__device__ inline void StoreCopy(Half* to, Part part, const float (&values)[kWidth]) {
  if (to == nullptr) return;
  if (part.count == kWidth) {
    CheckVector<sizeof(uint2)>(to + part.first);
    *reinterpret_cast<uint2*>(to + part.first) =
        uint2{PackPair<Half>(values[0], values[1]), PackPair<Half>(values[2], values[3])};
  } else {
    for (int v = 0; v < part.count; ++v) to[part.first + v] = FromFloat<Half>(values[v]);
  }
}

__device__ inline void ReportOverflow(const float (&parameters)[kWidth], UpdateControl* control) {
  bool finite = true;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) finite = finite && parameters[v] - parameters[v] == 0;
  if (!finite) control->parameters_not_finite = 1;
}

template <typename Rule>
__device__ inline typename Rule::Factors MakeFactors(const UpdateControl& control, int group) {
  typename Rule::Factors f;
  memcpy(&f, &control.inputs.factors[group], sizeof f);
  f.gradient_scale = control.decision.gradient_scale;
  return f;
}

// second: the second state buffer. All loads are issued before the decision is read: one memory
// latency instead of two.
template <typename Rule, typename Half>
__global__ void __launch_bounds__(kStepThreads)
    StepKernel(float* params, const float* gradient, float* first, float* second, Half* copy,
               std::int64_t elements, const StepTile* tiles, UpdateControl* control) {
  const Part part = LocatePart(elements, tiles);
  float p[kWidth];
  float g[kWidth];
  float m[kWidth];
  float s[kWidth];
  LoadPart(params, part, p);
  LoadPart(gradient, part, g);
  if constexpr (Rule::kStates > 0) LoadPart(first, StatePart(part), m);
  if constexpr (Rule::kStates > 1) LoadPart(second, StatePart(part), s);
  const auto f = MakeFactors<Rule>(*control, part.group);
  if (control->decision.idle != 0) return;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    if constexpr (Rule::kStates == 0) Rule::Update(f, g[v], &p[v]);
    if constexpr (Rule::kStates == 1) Rule::Update(f, g[v], &p[v], &m[v]);
    if constexpr (Rule::kStates == 2) Rule::Update(f, g[v], &p[v], &m[v], &s[v]);
  }
  StorePart(params, part, p);
  if constexpr (Rule::kStates > 0) StorePart(first, StatePart(part), m);
  if constexpr (Rule::kStates > 1) StorePart(second, StatePart(part), s);
  StoreCopy(copy, part, p);
  ReportOverflow(p, control);
}

__global__ void __launch_bounds__(kStepThreads)
    AverageKernel(const float* params, float* averages, std::int64_t elements,
                  const StepTile* tiles, const UpdateControl* control) {
  const Part part = LocatePart(elements, tiles);
  float p[kWidth];
  float a[kWidth];
  LoadPart(params, part, p);
  LoadPart(averages, StatePart(part), a);
  if (control->decision.idle != 0) return;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) AddToAverage(control->inputs.average_rate, p[v], &a[v]);
  StorePart(averages, StatePart(part), a);
}

template <typename Half>
__global__ void __launch_bounds__(kStepThreads)
    ExchangeKernel(float* params, float* averages, Half* copy, std::int64_t elements,
                   const StepTile* tiles) {
  const Part part = LocatePart(elements, tiles);
  float p[kWidth];
  float a[kWidth];
  LoadPart(params, part, p);
  LoadPart(averages, StatePart(part), a);
  StorePart(params, part, a);
  StorePart(averages, StatePart(part), p);
  StoreCopy(copy, part, a);
}

LaunchShape ShapeFor(std::int64_t elements, const StepTiles& tiles) {
  if (tiles.data != nullptr) return {static_cast<unsigned>(tiles.count), kStepThreads};
  return {BlocksFor(elements, kStepTileElements), kStepThreads};
}

}  // namespace

// The second state buffer follows the first; the kernel requires both to be aligned to 16 bytes.
Status EnqueueStep(cudaStream_t stream, const OptimizerSpec& spec,
                   const CudaOptimizer::Buffers& buffers, const StepTiles& tiles,
                   std::int64_t trainable, UpdateControl* control) {
  return WithRule(spec, [&](auto rule, const auto&) {
    using Rule = decltype(rule);
    float* const second = Rule::kStates > 1 ? buffers.state + trainable : nullptr;
    return WithHalf(buffers.copy_type, [&](auto half) {
      using Half = decltype(half);
      return Launch(StepKernel<Rule, Half>, ShapeFor(buffers.elements, tiles), stream,
                    Rule::kName.data(), buffers.parameters, buffers.gradient, buffers.state, second,
                    static_cast<Half*>(buffers.copy), buffers.elements, tiles.data, control);
    });
  });
}

Status EnqueueAverage(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                      const StepTiles& tiles, const UpdateControl* control) {
  return Launch(AverageKernel, ShapeFor(buffers.elements, tiles), stream, "averages of parameters",
                buffers.parameters, averages, buffers.elements, tiles.data, control);
}

Status EnqueueExchange(cudaStream_t stream, const CudaOptimizer::Buffers& buffers, float* averages,
                       const StepTiles& tiles) {
  return WithHalf(buffers.copy_type, [&](auto half) {
    using Half = decltype(half);
    return Launch(ExchangeKernel<Half>, ShapeFor(buffers.elements, tiles), stream,
                  "exchange of parameters and averages", buffers.parameters, averages,
                  static_cast<Half*>(buffers.copy), buffers.elements, tiles.data);
  });
}

}  // namespace gaccd
