#include "daemon/ops/cuda_kernels.h"

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/function_table.h"

namespace gaccd {
namespace {

struct Row {
  std::string_view name;
  CudaMaker make = nullptr;
  StridedOperands strided;
};
constexpr auto kRows = FromFunctionTable<Row>([](const FunctionRow& row) {
  return Row{row.name, row.cuda, row.strided};
});

Status CheckStrides(const KernelRequest& request, const StridedOperands& strided) {
  const auto only = [](std::span<const ValueSpec> operands, unsigned allowed) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].row_stride > 0 && (allowed >> i & 1U) == 0) return false;
    }
    return true;
  };
  const bool in_place = request.function.can_run_in_place();
  if (only(request.inputs, strided.inputs) && only(request.outputs, strided.outputs) &&
      (!in_place || request.inputs[0].row_stride == request.outputs[0].row_stride)) {
    return Status::Ok();
  }
  return {ErrorKind::kInternal, StrCat("'", request.function.name(),
                                       "': its kernel does not take these strides of rows")};
}

class CudaKernelFactory : public KernelFactory {
 public:
  CudaKernelFactory(CudaContext& context, std::vector<std::string>* notes, Communicator* comm)
      : context_(context), notes_(notes != nullptr ? notes : &unread_notes_), comm_(comm) {}

  KernelResult Make(const KernelRequest& request) override {
    const Row* row = FindRow(kRows, request.function.name());
    if (row == nullptr || row->make == nullptr) {
      return Status(ErrorKind::kConfig,
                    StrCat("'", request.function.name(), "' has no kernel for the GPU"));
    }
    GACCD_RETURN_IF_ERROR(CheckStrides(request, row->strided));
    if (sums_.data() == nullptr) {
      GACCD_ASSIGN_OR_RETURN(sums_, DeviceBuffer::Allocate(GridSums::kBytes, "sums of losses"));
    }
    const KernelStream on{context_.compute(), context_.multiprocessors(),
                          GridSums::At(sums_.data())};
    return row->make({request, context_, on, *notes_, comm_});
  }

 private:
  CudaContext& context_;
  std::vector<std::string> unread_notes_;
  std::vector<std::string>* notes_;
  Communicator* comm_;
  // shared by all losses: they run one after another on the compute stream
  DeviceBuffer sums_;
};

}  // namespace

std::unique_ptr<KernelFactory> MakeCudaKernels(CudaContext& context,
                                               std::vector<std::string>* notes,
                                               Communicator* comm) {
  return std::make_unique<CudaKernelFactory>(context, notes, comm);
}

}  // namespace gaccd
