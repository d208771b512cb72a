// One thread per written value; for an in-place sum, one per added value.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RearrangeKernel(const T* x, RearrangeNest order, T* y, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    std::int64_t at[StridedNest::kOperands] = {order.first, 0, 0};
    order.nest.Place(i, at);
    y[i] = x[at[0]];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AddInPlaceKernel(const T* dy, RearrangeNest order, T* sum, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    std::int64_t at[StridedNest::kOperands] = {order.first, 0, 0};
    order.nest.Place(i, at);
    sum[at[0]] = FromFloat<T>(ToFloat(sum[at[0]]) + ToFloat(dy[i]));
  }
}

// The indices i of y that read an index j of x: one index in each dimension with a source, all
// indices in repeating dimensions.
struct Readers {
  struct Source {
    std::int64_t size = 1;   // of x
    std::int64_t start = 0;  // of y
    std::int64_t step = 1;
    std::int64_t count = 1;
    std::int64_t place = 0;  // elements of y from one index to the next
  };
  Source sources[StridedNest::kMaxRank] = {};
  int rank = 0;
  StridedNest repeats;  // operand 1: y
};

Readers FindReaders(const Rearrangement& order) {
  Readers readers;
  readers.rank = static_cast<int>(order.from.size());
  Shape places(order.to.size());
  std::int64_t elements = 1;
  for (std::size_t d = places.size(); d-- > 0; elements *= order.to[d].size) places[d] = elements;
  for (std::size_t d = 0; d < places.size(); ++d) {
    const Rearrangement::Dimension& one = order.to[d];
    if (one.source < 0) {
      readers.repeats.Add(one.size, 0, places[d]);
    } else {
      readers.sources[one.source] = {order.from[static_cast<std::size_t>(one.source)], one.start,
                                     one.step, one.size, places[d]};
    }
  }
  return readers;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RearrangeGradientKernel(const T* added, const T* dy, Readers readers, T* dx,
                            std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    std::int64_t rest = i;
    std::int64_t place = 0;
    bool is_read = true;
    for (int s = readers.rank - 1; s >= 0; --s) {
      const Readers::Source& source = readers.sources[s];
      const std::int64_t from_start = rest % source.size - source.start;
      rest /= source.size;
      const std::int64_t index = from_start / source.step;
      is_read = is_read && index * source.step == from_start && index >= 0 && index < source.count;
      place += index * source.place;
    }
    float sum = added != nullptr ? ToFloat(added[i]) : 0;
    for (std::int64_t k = 0; is_read && k < readers.repeats.elements; ++k) {
      std::int64_t at[StridedNest::kOperands] = {0, place, 0};
      readers.repeats.Place(k, at);
      sum += ToFloat(dy[at[1]]);
    }
    dx[i] = FromFloat<T>(sum);
  }
}

}  // namespace

KernelResult MakeRearrangeCuda(const CudaRequest& request) {
  const auto order = MakeNest(static_cast<const Rearrange&>(request.function).order(), false);
  const std::int64_t n = Elements(request.outputs[0].shape);
  const auto run = [=, on = request.on](auto t, const Call& c) {
    using T = decltype(t);
    return LaunchForEach(RearrangeKernel<T>, on, n, "rearrange", c.in<T>(0), order, c.out<T>(0), n);
  };
  if (request.dtype() != DType::kI32) return MakeTypedCall(request, run);
  return MakeCall(request, [run](const Call& c) { return run(std::int32_t{}, c); });
}

KernelResult MakeRearrangeGradientCuda(const CudaRequest& request) {
  const auto readers = FindReaders(static_cast<const RearrangeGradient&>(request.function).order());
  const std::int64_t n = Elements(request.outputs[0].shape);
  return MakeTypedCall(request, [=, on = request.on](auto t, const Call& c) {
    using T = decltype(t);
    return LaunchForEach(RearrangeGradientKernel<T>, on, n, "rearrange_gradient",
                         static_cast<const T*>(nullptr), c.in<T>(0), readers, c.out<T>(0), n);
  });
}

KernelResult MakeRearrangeGradientAddCuda(const CudaRequest& request) {
  const Rearrangement& order = static_cast<const RearrangeGradientAdd&>(request.function).order();
  const std::int64_t n = Elements(request.outputs[0].shape);
  const std::int64_t own = Elements(request.inputs[1].shape);
  return MakeTypedCall(request, [nest = MakeNest(order, false), readers = FindReaders(order), n,
                                 own, on = request.on](auto t, const Call& c) {
    using T = decltype(t);
    if (c.inputs[0] == c.outputs[0]) {
      return LaunchForEach(AddInPlaceKernel<T>, on, own, "rearrange_gradient_add", c.in<T>(1), nest,
                           c.out<T>(0), own);
    }
    return LaunchForEach(RearrangeGradientKernel<T>, on, n, "rearrange_gradient_add", c.in<T>(0),
                         c.in<T>(1), readers, c.out<T>(0), n);
  });
}

}  // namespace gaccd
