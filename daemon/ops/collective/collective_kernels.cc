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
ConstBuffer In(const Call& c, const Operand& x) {
  return {c.inputs[0], x.count, x.dtype, x.memory};
}
MutableBuffer Out(const Call& c, const Operand& y) {
  return {c.outputs[0], y.count, y.dtype, y.memory};
}

Status Copy(const Device& device, const ConstBuffer& in, const MutableBuffer& out) {
  if (in.bytes() == 0 || in.data == out.data) return Status::Ok();
  return device.copy(in.data, in.bytes(), out.data);
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
  Operand x, y;

  template <typename F>
  [[nodiscard]] const F& function() const {
    return static_cast<const F&>(request.function);
  }
};

KernelResult MakeAllReduceSum(const Setting& setting) {
  return MakeCall(setting.request, [device = setting.device, x = setting.x](const Call& c) {
    return device.comm->AllReduceSum(In(c, x), Out(c, x), device.stream);
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

// The kernel for a single rank.
KernelResult MakeSingleRank(const Setting& setting) {
  return MakeCall(setting.request, [device = setting.device, x = setting.x](const Call& c) {
    return Copy(device, In(c, x), Out(c, x));
  });
}

struct Row {
  std::string_view name;
  KernelResult (*make)(const Setting&);
  bool communicates = true;
};
constexpr Row kRows[] = {
    {"all_gather", MakeAllGather},
    {"all_reduce_sum", MakeAllReduceSum},
    {"own_rows", MakeOwnRows, false},
    {"reduce_scatter", MakeReduceScatter},
};

}  // namespace

KernelResult MakeCollective(const KernelRequest& request, const CollectiveDevice& device) {
  const std::string_view name = request.function.name();
  const auto operand = [&](const ValueSpec& spec) {
    return Operand{static_cast<std::size_t>(Elements(spec.shape)), spec.dtype, device.memory};
  };
  const Setting setting{request, device, operand(request.inputs[0]), operand(request.outputs[0])};
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    if (row.communicates && device.comm == nullptr) {
      return Status(ErrorKind::kConfig,
                    StrCat("'", name, "' needs a communicator, and there is none"));
    }
    KernelResult kernel = row.make(setting);
    if (!kernel.ok() || !row.communicates || device.comm->size() > 1) return kernel;
    // The communicator of a single rank may only support host memory.
    return MakeSingleRank(setting);
  }
  return Status(ErrorKind::kInternal, StrCat("'", name, "' is no collective function"));
}

}  // namespace gaccd
