#include <algorithm>
#include <limits>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/layout/embedding.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct Table {
  std::int64_t rows;
  std::int64_t columns;
};

bool Has(const Table& table, std::int32_t id) { return id >= 0 && id < table.rows; }

void Gather(const std::int32_t* ids, const float* values, const Table& table, std::int64_t rows,
            float* y) {
  for (std::int64_t n = 0; n < rows; ++n) {
    float* to = y + n * table.columns;
    if (Has(table, ids[n])) {
      std::copy_n(values + ids[n] * table.columns, table.columns, to);
    } else {
      std::fill_n(to, table.columns, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

GACCD_SIMD_CLONES
void AddRow(const float* from, std::int64_t columns, float* to) {
  for (std::int64_t c = 0; c < columns; ++c) to[c] += from[c];
}

// y = x + table, over the rows of one sequence, which are contiguous. y may alias x.
GACCD_SIMD_CLONES
void AddInto(const float* x, const float* table, std::int64_t elements, float* y) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = x[i] + table[i];
}

}  // namespace

KernelResult MakeEmbeddingCpu(const KernelRequest& request) {
  const Shape& shape = request.inputs[1].shape;
  const Table table{shape[0], shape[1]};
  return MakeCall(request, [table, rows = request.outputs[0].shape[0]](const Call& c) {
    Gather(c.in<std::int32_t>(0), c.in<float>(1), table, rows, c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakeEmbeddingGradientCpu(const KernelRequest& request) {
  const Shape& shape = request.outputs[0].shape;
  const Table table{shape[0], shape[1]};
  return MakeCall(request, [table, rows = request.inputs[0].shape[0]](const Call& c) {
    const auto* ids = c.in<std::int32_t>(1);
    if (!c.add[0]) std::fill_n(c.out<float>(0), table.rows * table.columns, 0.0F);
    for (std::int64_t n = 0; n < rows; ++n) {
      if (!Has(table, ids[n])) continue;
      AddRow(c.in<float>(0) + n * table.columns, table.columns,
             c.out<float>(0) + ids[n] * table.columns);
    }
    return Status::Ok();
  });
}

KernelResult MakeAddPositionsCpu(const KernelRequest& request) {
  const auto& function = static_cast<const AddPositions&>(request.function);
  const std::int64_t all = Elements(request.inputs[0].shape);
  const std::int64_t sequence = function.length() * request.inputs[0].shape[1];
  return MakeCall(request, [all, sequence](const Call& c) {
    for (std::int64_t i = 0; i < all; i += sequence) {
      AddInto(c.in<float>(0) + i, c.in<float>(1), sequence, c.out<float>(0) + i);
    }
    return Status::Ok();
  });
}

KernelResult MakePositionsGradientCpu(const KernelRequest& request) {
  const auto& function = static_cast<const PositionsGradient&>(request.function);
  const std::int64_t all = Elements(request.inputs[0].shape);
  const std::int64_t sequence = function.length() * request.inputs[0].shape[1];
  const std::int64_t table = Elements(request.outputs[0].shape);
  return MakeCall(request, [all, sequence, table](const Call& c) {
    if (!c.add[0]) std::fill_n(c.out<float>(0), table, 0.0F);
    for (std::int64_t i = 0; i < all; i += sequence) {
      AddRow(c.in<float>(0) + i, std::min(sequence, table), c.out<float>(0));
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
