// Embeddings and positions.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

constexpr const char* kPositionsGradient = "positions_gradient";

// One warp per row.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    EmbeddingKernel(const std::int32_t* ids, std::int64_t count, const float* table,
                    std::int64_t rows, std::int64_t columns, T* y) {
  for (std::int64_t n = GridIndex() / kWarp; n < count; n += GridStride() / kWarp) {
    const std::int64_t id = ids[n];
    const bool is_row = id >= 0 && id < rows;
    for (std::int64_t c = threadIdx.x % kWarp * kWidth; c < columns; c += kWarp * kWidth) {
      float values[kWidth];
      for (float& value : values) value = NAN;
      if (is_row) Load<Use::kAgain>(table + id * columns + c, values);
      Store<Use::kAgain>(y + n * columns + c, values);
    }
  }
}

// The position within a sequence is updated incrementally: a division per value would take longer
// than its memory accesses.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    AddPositionsKernel(const T* x, const float* table, std::int64_t elements, std::int64_t sequence,
                       T* y) {
  const std::int64_t step = GridStride() * kWidth;
  const std::int64_t step_in_sequence = step % sequence;
  std::int64_t place = GridIndex() * kWidth % sequence;
  for (std::int64_t i = GridIndex() * kWidth; i < elements; i += step) {
    float values[kWidth];
    float added[kWidth];
    Load<Use::kAgain>(x + i, values);
    Load<Use::kAgain>(table + place, added);
    for (int v = 0; v < kWidth; ++v) values[v] += added[v];
    Store<Use::kAgain>(y + i, values);
    place += step_in_sequence;
    if (place >= sequence) place -= sequence;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    PositionsGradientKernel(const T* dy, std::int64_t elements, std::int64_t sequence,
                            std::int64_t table, float* dtable, bool add) {
  for (std::int64_t i = GridIndex(); i < table; i += GridStride()) {
    float sum = 0;
    if (i < sequence) {
      for (std::int64_t j = i; j < elements; j += sequence) sum += ToFloat(dy[j]);
    }
    dtable[i] = add ? dtable[i] + sum : sum;
  }
}

}  // namespace

KernelResult MakeEmbeddingCuda(const CudaRequest& request) {
  return MakeCall(
      request, [on = request.on, dtype = request.outputs[0].dtype, count = request.elements(),
                size = ToMatrix(request.inputs[1])](const Call& c) {
        return WithFloat(dtype, [&](auto t) {
          using T = decltype(t);
          const auto* table = c.in<float>(1);
          T* y = c.out<T>(0);
          const bool aligned =
              IsVectorAligned(table) && IsVectorAligned(y) && size.columns % kVectorWidth<T> == 0;
          return Launch(aligned ? EmbeddingKernel<T, kVectorWidth<T>> : EmbeddingKernel<T, 1>,
                        {on.Blocks(count, kWarps), kThreads}, on.stream, "embedding",
                        c.in<std::int32_t>(0), count, table, size.rows, size.columns, y);
        });
      });
}

KernelResult MakeAddPositionsCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const AddPositions&>(request.function).length();
  return MakeTypedCall(
      request, [on = request.on, n = request.elements(),
                sequence = length * request.size().columns](auto t, const Call& c) {
        using T = decltype(t);
        const T* x = c.in<T>(0);
        const auto* table = c.in<float>(1);
        T* y = c.out<T>(0);
        // Sequences begin at multiples of their length.
        const bool aligned = IsVectorAligned(x) && IsVectorAligned(table) && IsVectorAligned(y) &&
                             n % sequence == 0 && sequence % kVectorWidth<T> == 0;
        return Launch(aligned ? AddPositionsKernel<T, kVectorWidth<T>> : AddPositionsKernel<T, 1>,
                      {on.Blocks(n, kThreads * (aligned ? kVectorWidth<T> : 1)), kThreads},
                      on.stream, "add_positions", x, table, n, sequence, y);
      });
}

KernelResult MakePositionsGradientCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const PositionsGradient&>(request.function).length();
  const std::int64_t table = Elements(request.outputs[0].shape);
  if (length == 1) {  // one sum over all rows per column, as in a bias gradient
    const Matrix size = ToMatrix(request.inputs[0]);
    return MakeCall(
        request,
        [on = request.on, dtype = request.dtype(), size, table](const Call& c) -> Status {
          float* const first_row = c.out<float>(0);
          if (!c.add[0] && table > size.columns) {
            const auto rest = static_cast<std::size_t>(table - size.columns) * sizeof(float);
            GACCD_RETURN_IF_ERROR(CudaStatus(
                cudaMemsetAsync(first_row + size.columns, 0, rest, on.stream), kPositionsGradient));
          }
          return EnqueueBiasGradient(on, dtype, c.inputs[0], size, first_row, c.add[0], c.scratch);
        },
        BiasGradientScratchBytes(size));
  }
  return MakeTypedCall(
      request, [on = request.on, n = request.elements(), table,
                sequence = length * request.size().columns](auto t, const Call& c) {
        using T = decltype(t);
        return LaunchForEach(PositionsGradientKernel<T>, on, table, kPositionsGradient, c.in<T>(0),
                             n, sequence, table, c.out<float>(0), c.add[0]);
      });
}

}  // namespace gaccd
