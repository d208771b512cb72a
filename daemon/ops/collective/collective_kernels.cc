// The memory plan guarantees that outputs of these kernels do not overlap their inputs.
#include "daemon/ops/collective/collective_kernels.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/collective/collective.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;
using Device = CollectiveDevice;

struct Operand {
  std::size_t count = 0;
  DType dtype = DType::kF32;
  MemoryKind memory = MemoryKind::kHost;
};
ConstBuffer In(const Call& c, const Operand& x, std::size_t i = 0) {
  return {c.inputs[i], x.count, x.dtype, x.memory};
}
MutableBuffer Out(const Call& c, const Operand& y, std::size_t i = 0) {
  return {c.outputs[i], y.count, y.dtype, y.memory};
}

Status Copy(const Device& device, const ConstBuffer& in, const MutableBuffer& out) {
  if (in.bytes() == 0 || in.data == out.data) return Status::Ok();
  if (device.copy) return device.copy(in.data, in.bytes(), out.data);
  return {ErrorKind::kInternal, "expected an operation in place, found an output elsewhere"};
}

Status CheckRoot(int root, const Communicator& comm) {
  if (root < comm.size()) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("expected a root below ", comm.size(), ", found rank ", root)};
}

// Element counts by rank. whole: the operand that has the rows of all ranks.
Result<std::vector<std::int64_t>> Parts(const KernelRequest& request, const Communicator& comm,
                                        const RowsByRank& rows, const ValueSpec& whole) {
  if (std::ssize(rows.rows) != comm.size() || rows.rank != comm.rank()) {
    return Status(ErrorKind::kInternal,
                  StrCat("'", request.function.name(), "' is for rank ", rows.rank, " of ",
                         rows.rows.size(), ", this is rank ", comm.rank(), " of ", comm.size()));
  }
  const std::int64_t width = Elements(Shape(whole.shape.begin() + 1, whole.shape.end()));
  std::vector<std::int64_t> elements;
  for (const std::int64_t count : rows.rows) elements.push_back(count * width);
  return elements;
}

// Arguments of the makers below: the node, its operands, the device. The communicator is not null.
struct Setting {
  const KernelRequest& request;
  const Device& device;
  Operand x = operand(request.inputs[0]);
  Operand y = operand(request.outputs[0]);

  [[nodiscard]] Operand operand(const ValueSpec& spec) const {
    return {static_cast<std::size_t>(Elements(spec.shape)), spec.dtype, device.memory};
  }

  template <typename F>
  [[nodiscard]] const F& function() const {
    return static_cast<const F&>(request.function);
  }
};

KernelResult MakeAllReduceSum(const Setting& setting) {
  if (setting.request.inputs.size() == 1) {
    return MakeCall(setting.request, [device = setting.device, x = setting.x](const Call& c) {
      return device.comm->AllReduceSum(In(c, x), Out(c, x), device.stream);
    });
  }
  std::vector<Operand> all;
  for (const ValueSpec& x : setting.request.inputs) all.push_back(setting.operand(x));
  return MakeCall(setting.request, [device = setting.device, all = std::move(all)](const Call& c) {
    std::vector<MutableBuffer> sums;
    for (std::size_t i = 0; i < all.size(); ++i) {
      sums.push_back(Out(c, all[i], i));
      GACCD_RETURN_IF_ERROR(Copy(device, In(c, all[i], i), sums.back()));
    }
    return device.comm->AllReduceSums(sums, device.stream);
  });
}

KernelResult MakeAllReduceMean(const Setting& setting) {
  const std::int64_t count = setting.function<AllReduceMean>().count();
  return MakeCall(setting.request, [device = setting.device, count, x = setting.x](const Call& c) {
    GACCD_RETURN_IF_ERROR(device.comm->AllReduceSum(In(c, x), Out(c, x), device.stream));
    return device.divide(c.out<float>(0), static_cast<std::int64_t>(x.count), count,
                         c.out<float>(0));
  });
}

KernelResult MakeAllGather(const Setting& setting) {
  const KernelRequest& request = setting.request;
  GACCD_ASSIGN_OR_RETURN(auto parts,
                         Parts(request, *setting.device.comm, setting.function<AllGather>().rows(),
                               request.outputs[0]));
  return MakeCall(setting.request, [device = setting.device, parts = std::move(parts),
                                    x = setting.x, y = setting.y](const Call& c) {
    return device.comm->AllGather(In(c, x), parts, Out(c, y), device.stream);
  });
}

KernelResult MakeReduceScatter(const Setting& setting) {
  const KernelRequest& request = setting.request;
  GACCD_ASSIGN_OR_RETURN(
      auto parts, Parts(request, *setting.device.comm, setting.function<ReduceScatter>().rows(),
                        request.inputs[0]));
  return MakeCall(setting.request, [device = setting.device, parts = std::move(parts),
                                    x = setting.x, y = setting.y](const Call& c) {
    return device.comm->ReduceScatter(In(c, x), parts, Out(c, y), device.stream);
  });
}

KernelResult MakeBroadcast(const Setting& setting) {
  const int root = setting.function<Broadcast>().root();
  GACCD_RETURN_IF_ERROR(CheckRoot(root, *setting.device.comm));
  return MakeCall(setting.request, [device = setting.device, root, x = setting.x](const Call& c) {
    if (device.comm->rank() == root) GACCD_RETURN_IF_ERROR(Copy(device, In(c, x), Out(c, x)));
    return device.comm->Broadcast(Out(c, x), root, device.stream);
  });
}

KernelResult MakeBroadcastGradient(const Setting& setting) {
  const auto& function = setting.function<BroadcastGradient>();
  const Communicator& comm = *setting.device.comm;
  GACCD_RETURN_IF_ERROR(CheckRoot(function.root(), comm));
  const bool is_root = comm.rank() == function.root();
  const bool sum = function.convention() == GradConvention::kPerRankLoss;
  // A reduction to one rank is a reduce-scatter in which it owns everything.
  std::vector<std::int64_t> elements(static_cast<std::size_t>(comm.size()));
  elements[static_cast<std::size_t>(function.root())] = static_cast<std::int64_t>(setting.x.count);
  return MakeCall(setting.request, [device = setting.device, x = setting.x, is_root, sum,
                                    elements = std::move(elements)](const Call& c) {
    MutableBuffer dx = Out(c, x);
    if (!is_root && dx.bytes() > 0) GACCD_RETURN_IF_ERROR(device.clear(dx.data, dx.bytes()));
    if (!sum) return is_root ? Copy(device, In(c, x), dx) : Status::Ok();
    if (!is_root) dx.count = 0;
    return device.comm->ReduceScatter(In(c, x), elements, dx, device.stream);
  });
}

KernelResult MakeDivideByCount(const Setting& setting) {
  const std::int64_t count = setting.function<DivideByCount>().count();
  return MakeCall(setting.request, [device = setting.device, count, x = setting.x](const Call& c) {
    return device.divide(c.in<float>(0), static_cast<std::int64_t>(x.count), count,
                         c.out<float>(0));
  });
}

KernelResult MakeOwnRows(const Setting& setting) {
  const RowsByRank& rows = setting.function<OwnRows>().rows();
  std::int64_t before = 0;
  for (int r = 0; r < rows.rank; ++r) before += rows.rows[static_cast<std::size_t>(r)];
  const Shape& whole = setting.request.inputs[0].shape;
  const std::int64_t first = before * Elements(Shape(whole.begin() + 1, whole.end()));
  return MakeCall(setting.request, [device = setting.device, first, y = setting.y](const Call& c) {
    return Copy(device, {c.in<float>(0) + first, y.count, y.dtype, y.memory}, Out(c, y));
  });
}

// The kernel for a single rank whose communicator does not support this memory.
KernelResult MakeSingleRank(const Setting& setting) {
  const auto* mean = dynamic_cast<const AllReduceMean*>(&setting.request.function);
  std::vector<Operand> all;
  for (const ValueSpec& x : setting.request.inputs) all.push_back(setting.operand(x));
  return MakeCall(setting.request, [device = setting.device, all = std::move(all),
                                    count = mean != nullptr ? mean->count() : 1](const Call& c) {
    if (count != 1) {
      return device.divide(c.in<float>(0), static_cast<std::int64_t>(all[0].count), count,
                           c.out<float>(0));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      GACCD_RETURN_IF_ERROR(Copy(device, In(c, all[i], i), Out(c, all[i], i)));
    }
    return Status::Ok();
  });
}

struct Row {
  std::string_view name;
  KernelResult (*make)(const Setting&);
  bool communicates = true;
};
constexpr Row kRows[] = {
    {"all_gather", MakeAllGather},
    {"all_reduce_mean", MakeAllReduceMean},
    {"all_reduce_sum", MakeAllReduceSum},
    {"broadcast", MakeBroadcast},
    {"broadcast_gradient", MakeBroadcastGradient},
    {"divide_by_count", MakeDivideByCount, false},
    {"own_rows", MakeOwnRows, false},
    {"reduce_scatter", MakeReduceScatter},
};

}  // namespace

KernelResult MakeCollective(const KernelRequest& request, const CollectiveDevice& device) {
  const std::string_view name = request.function.name();
  const Setting setting{.request = request, .device = device};
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    if (row.communicates && device.comm == nullptr) {
      return Status(ErrorKind::kConfig,
                    StrCat("'", name, "' needs a communicator, and there is none"));
    }
    KernelResult kernel = row.make(setting);
    if (!kernel.ok() || !row.communicates || device.comm->size() > 1) return kernel;
    const bool accepts =
        device.memory == MemoryKind::kHost || device.comm->memory() == device.memory;
    return accepts ? std::move(kernel) : MakeSingleRank(setting);
  }
  return Status(ErrorKind::kInternal, StrCat("'", name, "' is no collective function"));
}

}  // namespace gaccd
