#include "daemon/ops/cpu_kernels.h"

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/function_table.h"

namespace gaccd {
namespace {

struct Row {
  std::string_view name;
  CpuMaker make = nullptr;
};
constexpr auto kRows = FromFunctionTable<Row>([](const FunctionRow& row) {
  return Row{row.name, row.cpu};
});

// kConfig if one of `specs` has a type that the kernel does not support.
Status CheckTypes(const KernelRequest& request, std::span<const ValueSpec> specs, bool bf16) {
  for (const ValueSpec& spec : specs) {
    if (spec.dtype != DType::kFP16 && (spec.dtype != DType::kBF16 || bf16)) continue;
    return {ErrorKind::kConfig, StrCat("'", request.function.name(), "' has no kernel for ",
                                       Name(spec.dtype), " on the CPU: expected f32, found ",
                                       Name(spec.dtype), " ", ToString(spec.shape))};
  }
  return Status::Ok();
}

class CpuKernelFactory : public KernelFactory {
 public:
  explicit CpuKernelFactory(const CpuEnvironment& environment) : environment_(environment) {}

  KernelResult Make(const KernelRequest& request) override {
    const Row* row = FindRow(kRows, request.function.name());
    GACCD_RETURN_IF_ERROR(
        CheckTypes(request, request.inputs, row != nullptr && row->make.takes_bf16));
    GACCD_RETURN_IF_ERROR(
        CheckTypes(request, request.outputs, row != nullptr && row->make.makes_bf16));
    if (row != nullptr && row->make.of_node != nullptr) return row->make.of_node(request);
    if (row != nullptr && row->make.of_environment != nullptr) {
      return row->make.of_environment(request, environment_);
    }
    return Status(ErrorKind::kConfig,
                  StrCat("'", request.function.name(), "' has no kernel for the CPU"));
  }

 private:
  CpuEnvironment environment_;
};

}  // namespace

std::unique_ptr<KernelFactory> MakeCpuKernels(CpuContext& context, const CpuKernelOptions& options,
                                              Communicator* comm) {
  return std::make_unique<CpuKernelFactory>(CpuEnvironment{context, options, comm});
}

}  // namespace gaccd
