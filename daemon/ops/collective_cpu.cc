// Every kernel leaves its input as it is; the memory plan keeps outputs apart from inputs.
#include <cstring>
#include <utility>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "collectives/comm/communicator.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/collective.h"
#include "daemon/ops/cpu_kernels.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct Operand {
  std::size_t count = 0;
  DType dtype = DType::kF32;
};
Operand OperandOf(const ValueSpec& spec) {
  return {static_cast<std::size_t>(Elements(spec.shape)), spec.dtype};
}
ConstBuffer In(const Call& c, const Operand& x) { return {c.inputs[0], x.count, x.dtype}; }
MutableBuffer Out(const Call& c, const Operand& y) { return {c.outputs[0], y.count, y.dtype}; }

void Copy(const ConstBuffer& in, const MutableBuffer& out) {
  if (in.bytes() > 0 && in.data != out.data) std::memcpy(out.data, in.data, in.bytes());
}

// In double, because a count above 2^24 has no exact float. out may be in.
GACCD_SIMD_CLONES
void Divide(const float* in, std::size_t elements, std::int64_t count, float* out) {
  const auto by = static_cast<double>(count);
  for (std::size_t i = 0; i < elements; ++i) {
    out[i] = static_cast<float>(static_cast<double>(in[i]) / by);
  }
}

Result<Communicator*> CommOf(const KernelRequest& request, const CpuEnvironment& environment) {
  if (environment.comm != nullptr) return environment.comm;
  return Status(ErrorKind::kConfig,
                StrCat("'", request.function.name(), "' needs a communicator, and there is none"));
}

Status CheckRoot(int root, const Communicator& comm) {
  if (root < comm.size()) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("expected a root below ", comm.size(), ", found rank ", root)};
}

struct Parts {
  Communicator* comm = nullptr;
  std::vector<std::int64_t> elements;  // by rank
  Operand x, y;
};
// `whole`: the operand that has the rows of all ranks.
Result<Parts> PartsOf(const KernelRequest& request, const CpuEnvironment& environment,
                      const RowsByRank& rows, const ValueSpec& whole) {
  GACCD_ASSIGN_OR_RETURN(Communicator* const comm, CommOf(request, environment));
  if (std::ssize(rows.rows) != comm->size() || rows.rank != comm->rank()) {
    return Status(ErrorKind::kInternal,
                  StrCat("'", request.function.name(), "' is for rank ", rows.rank, " of ",
                         rows.rows.size(), ", this is rank ", comm->rank(), " of ", comm->size()));
  }
  const std::int64_t width = Elements(Shape(whole.shape.begin() + 1, whole.shape.end()));
  Parts parts{comm, {}, OperandOf(request.inputs[0]), OperandOf(request.outputs[0])};
  for (const std::int64_t count : rows.rows) parts.elements.push_back(count * width);
  return parts;
}

KernelResult Make(const KernelRequest& request, CallKernel::Action run) {
  return std::unique_ptr<Kernel>(std::make_unique<CallKernel>(request, std::move(run)));
}

}  // namespace

KernelResult MakeAllReduceSumCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  GACCD_ASSIGN_OR_RETURN(Communicator* const comm, CommOf(request, environment));
  return Make(request, [comm, x = OperandOf(request.inputs[0])](const Call& c) {
    return comm->AllReduceSum(In(c, x), Out(c, x));
  });
}

KernelResult MakeAllReduceMeanCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  GACCD_ASSIGN_OR_RETURN(Communicator* const comm, CommOf(request, environment));
  const std::int64_t count = static_cast<const AllReduceMean&>(request.function).count();
  return Make(request, [comm, count, x = OperandOf(request.inputs[0])](const Call& c) {
    GACCD_RETURN_IF_ERROR(comm->AllReduceSum(In(c, x), Out(c, x)));
    Divide(c.out<float>(0), x.count, count, c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakeAllGatherCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  const RowsByRank& rows = static_cast<const AllGather&>(request.function).rows();
  GACCD_ASSIGN_OR_RETURN(Parts parts, PartsOf(request, environment, rows, request.outputs[0]));
  return Make(request, [parts = std::move(parts)](const Call& c) {
    return parts.comm->AllGather(In(c, parts.x), parts.elements, Out(c, parts.y));
  });
}

KernelResult MakeReduceScatterCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  const RowsByRank& rows = static_cast<const ReduceScatter&>(request.function).rows();
  GACCD_ASSIGN_OR_RETURN(Parts parts, PartsOf(request, environment, rows, request.inputs[0]));
  return Make(request, [parts = std::move(parts)](const Call& c) {
    return parts.comm->ReduceScatter(In(c, parts.x), parts.elements, Out(c, parts.y));
  });
}

KernelResult MakeBroadcastCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  GACCD_ASSIGN_OR_RETURN(Communicator* const comm, CommOf(request, environment));
  const int root = static_cast<const Broadcast&>(request.function).root();
  GACCD_RETURN_IF_ERROR(CheckRoot(root, *comm));
  return Make(request, [comm, root, x = OperandOf(request.inputs[0])](const Call& c) {
    if (comm->rank() == root) Copy(In(c, x), Out(c, x));
    return comm->Broadcast(Out(c, x), root);
  });
}

KernelResult MakeDivideByCountCpu(const KernelRequest& request) {
  const std::int64_t count = static_cast<const DivideByCount&>(request.function).count();
  return Make(request, [count, x = OperandOf(request.inputs[0])](const Call& c) {
    Divide(c.in<float>(0), x.count, count, c.out<float>(0));
    return Status::Ok();
  });
}

KernelResult MakeOwnRowsCpu(const KernelRequest& request) {
  const RowsByRank& rows = static_cast<const OwnRows&>(request.function).rows();
  std::int64_t before = 0;
  for (int r = 0; r < rows.rank; ++r) before += rows.rows[static_cast<std::size_t>(r)];
  const Shape& whole = request.inputs[0].shape;
  const std::int64_t first = before * Elements(Shape(whole.begin() + 1, whole.end()));
  return Make(request, [first, y = OperandOf(request.outputs[0])](const Call& c) {
    Copy({c.in<float>(0) + first, y.count, y.dtype}, Out(c, y));
    return Status::Ok();
  });
}

KernelResult MakeBroadcastGradientCpu(const KernelRequest& request,
                                      const CpuEnvironment& environment) {
  GACCD_ASSIGN_OR_RETURN(Communicator* const comm, CommOf(request, environment));
  const auto& function = static_cast<const BroadcastGradient&>(request.function);
  GACCD_RETURN_IF_ERROR(CheckRoot(function.root(), *comm));
  const Operand x = OperandOf(request.inputs[0]);
  const bool is_root = comm->rank() == function.root();
  // A reduction to one rank is a reduce-scatter that gives everything to it.
  std::vector<std::int64_t> elements(static_cast<std::size_t>(comm->size()));
  elements[static_cast<std::size_t>(function.root())] = static_cast<std::int64_t>(x.count);
  const bool sum = function.convention() == GradConvention::kPerRankLoss;
  return Make(request, [comm, x, is_root, sum, elements = std::move(elements)](const Call& c) {
    MutableBuffer dx = Out(c, x);
    if (!is_root && dx.bytes() > 0) std::memset(dx.data, 0, dx.bytes());
    if (!sum && is_root) Copy(In(c, x), dx);
    if (!sum) return Status::Ok();
    if (!is_root) dx.count = 0;
    return comm->ReduceScatter(In(c, x), elements, dx);
  });
}

}  // namespace gaccd
