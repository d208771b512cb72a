#include <algorithm>

#include "daemon/ops/call_kernel.h"
#include "daemon/ops/layout/join_columns.h"

namespace gaccd {
namespace {

// Copies `columns` values of every row; rows are from_step and to_step elements apart.
void CopyColumns(const float* from, std::int64_t from_step, float* to, std::int64_t to_step,
                 std::int64_t columns, std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(from + r * from_step, columns, to + r * to_step);
}

}  // namespace

KernelResult MakeJoinColumnsCpu(const KernelRequest& request) {
  const std::int64_t rows = request.outputs[0].shape[0];
  const std::int64_t a = request.inputs[0].shape[1];
  const std::int64_t b = request.inputs[1].shape[1];
  return MakeCall(request, [=](const CallKernel::Call& call) {
    CopyColumns(call.in<float>(0), a, call.out<float>(0), a + b, a, rows);
    CopyColumns(call.in<float>(1), b, call.out<float>(0) + a, a + b, b, rows);
    return Status::Ok();
  });
}

KernelResult MakeJoinColumnsGradientCpu(const KernelRequest& request) {
  const std::int64_t rows = request.inputs[0].shape[0];
  const std::int64_t a = request.outputs[0].shape[1];
  const std::int64_t b = request.outputs[1].shape[1];
  return MakeCall(request, [=](const CallKernel::Call& call) {
    CopyColumns(call.in<float>(0), a + b, call.out<float>(0), a, a, rows);
    CopyColumns(call.in<float>(0) + a, a + b, call.out<float>(1), b, b, rows);
    return Status::Ok();
  });
}

}  // namespace gaccd
