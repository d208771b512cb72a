#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/elementwise.h"
#include "daemon/tensor/bf16.h"

namespace gaccd {

GACCD_SIMD_CLONES
void ReluInPlace(float* values, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) values[i] = ReluFormula::Of(values[i]);
}

namespace {

// c[i] = f(a[i], b[i]); c may be a or b.
using BinaryLoop = void (*)(const float* a, const float* b, float* c, std::int64_t elements);

GACCD_SIMD_CLONES
void AddLoop(const float* a, const float* b, float* c, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) c[i] = AddFormula::Of(a[i], b[i]);
}

GACCD_SIMD_CLONES
void ReluLoop(const float* x, const float*, float* y, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = ReluFormula::Of(x[i]);
}

GACCD_SIMD_CLONES
void ReluGradientLoop(const float* dy, const float* y, float* dx, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) dx[i] = ReluGradientFormula::Of(dy[i], y[i]);
}

GACCD_SIMD_CLONES
void GeluLoop(const float* x, const float*, float* y, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = GeluFormula::Of(x[i]);
}

GACCD_SIMD_CLONES
void GeluGradientLoop(const float* dy, const float* x, float* dx, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) dx[i] = GeluGradientFormula::Of(dy[i], x[i]);
}

GACCD_SIMD_CLONES
void GeluTanhLoop(const float* x, const float*, float* y, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = GeluTanhFormula::Of(x[i]);
}

GACCD_SIMD_CLONES
void GeluTanhGradientLoop(const float* dy, const float* x, float* dx, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) dx[i] = GeluTanhGradientFormula::Of(dy[i], x[i]);
}

GACCD_SIMD_CLONES
void TanhLoop(const float* x, const float*, float* y, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = TanhFormula::Of(x[i]);
}

GACCD_SIMD_CLONES
void TanhGradientLoop(const float* dy, const float* y, float* dx, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) dx[i] = TanhGradientFormula::Of(dy[i], y[i]);
}

GACCD_SIMD_CLONES
void SiluLoop(const float* x, const float*, float* y, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = SiluFormula::Of(x[i]);
}

GACCD_SIMD_CLONES
void SiluGradientLoop(const float* dy, const float* x, float* dx, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) dx[i] = SiluGradientFormula::Of(dy[i], x[i]);
}

GACCD_SIMD_CLONES
void RoundLoop(const float* x, Bf16* y, std::int64_t elements) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < elements; ++i) y[i] = ToBf16(x[i]);
}

class LoopKernel : public Kernel {
 public:
  LoopKernel(BinaryLoop loop, std::int64_t elements) : loop_(loop), elements_(elements) {}
  void Bind(const Operands& operands) override {
    a_ = operands.in<float>(0);
    b_ = operands.inputs.size() > 1 ? operands.in<float>(1) : nullptr;
    c_ = operands.out<float>(0);
  }
  Status Run(OutputMask) override {
    loop_(a_, b_, c_, elements_);
    return Status::Ok();
  }

 private:
  BinaryLoop loop_;
  std::int64_t elements_;
  const float* a_ = nullptr;
  const float* b_ = nullptr;
  float* c_ = nullptr;
};

class AccumulateKernel : public Kernel {
 public:
  explicit AccumulateKernel(std::int64_t elements) : elements_(elements) {}
  void Bind(const Operands& operands) override {
    a_ = operands.in<float>(0);
    gradient_ = operands.out<float>(0);
  }
  Status Run(OutputMask add) override {
    if (add[0]) {
      AddLoop(a_, gradient_, gradient_, elements_);
    } else {
      std::copy_n(a_, elements_, gradient_);
    }
    return Status::Ok();
  }

 private:
  std::int64_t elements_;
  const float* a_ = nullptr;
  float* gradient_ = nullptr;
};

KernelResult MakeLoop(const KernelRequest& request, BinaryLoop loop) {
  return std::unique_ptr<Kernel>(
      std::make_unique<LoopKernel>(loop, Elements(request.outputs[0].shape)));
}

}  // namespace

KernelResult MakeAccumulateCpu(const KernelRequest& request) {
  return std::unique_ptr<Kernel>(
      std::make_unique<AccumulateKernel>(Elements(request.outputs[0].shape)));
}

KernelResult MakeAddCpu(const KernelRequest& request) { return MakeLoop(request, AddLoop); }

KernelResult MakeCastCpu(const KernelRequest& request) {
  const DType from = request.inputs[0].dtype;
  const DType to = request.outputs[0].dtype;
  if (from != DType::kF32 || to != DType::kBF16) {
    return Status(ErrorKind::kConfig, StrCat("'cast' on the CPU: expected f32 to bf16, found ",
                                             Name(from), " to ", Name(to)));
  }
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, [=](const CallKernel::Call& c) {
        RoundLoop(c.in<float>(0), c.out<Bf16>(0), elements);
        return Status::Ok();
      }));
}

KernelResult MakeReluCpu(const KernelRequest& request) { return MakeLoop(request, ReluLoop); }

KernelResult MakeGeluCpu(const KernelRequest& request) { return MakeLoop(request, GeluLoop); }

KernelResult MakeGeluGradientCpu(const KernelRequest& request) {
  return MakeLoop(request, GeluGradientLoop);
}

KernelResult MakeGeluTanhCpu(const KernelRequest& request) {
  return MakeLoop(request, GeluTanhLoop);
}

KernelResult MakeGeluTanhGradientCpu(const KernelRequest& request) {
  return MakeLoop(request, GeluTanhGradientLoop);
}

KernelResult MakeTanhCpu(const KernelRequest& request) { return MakeLoop(request, TanhLoop); }

KernelResult MakeTanhGradientCpu(const KernelRequest& request) {
  return MakeLoop(request, TanhGradientLoop);
}

KernelResult MakeSiluCpu(const KernelRequest& request) { return MakeLoop(request, SiluLoop); }

KernelResult MakeSiluGradientCpu(const KernelRequest& request) {
  return MakeLoop(request, SiluGradientLoop);
}

KernelResult MakeReluGradientCpu(const KernelRequest& request) {
  return MakeLoop(request, ReluGradientLoop);
}

KernelResult MakeZerosCpu(const KernelRequest& request) {
  std::vector<std::size_t> bytes;
  for (const ValueSpec& spec : request.outputs) {
    bytes.push_back(static_cast<std::size_t>(spec.bytes()));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, [bytes = std::move(bytes)](const CallKernel::Call& c) {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
          if (!c.add[i] && bytes[i] > 0) std::memset(c.outputs[i], 0, bytes[i]);
        }
        return Status::Ok();
      }));
}

}  // namespace gaccd
