#include <algorithm>
#include <cmath>

#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/elementwise.h"

namespace gaccd {
namespace {

struct Rows {
  std::int64_t rows;
  std::int64_t columns;
};

Rows RowsOf(const ValueSpec& spec) { return {spec.shape[0], spec.shape[1]}; }

// Writes softmax(z) to p and returns log(sum exp z), in double: the loss of a confident row is the
// small difference of two large numbers.
double SoftmaxRow(const float* z, std::int64_t columns, float* p) {
  const float largest = *std::max_element(z, z + columns);
  double sum = 0;
  for (std::int64_t c = 0; c < columns; ++c) {
    p[c] = std::exp(z[c] - largest);
    sum += p[c];
  }
  const auto scale = static_cast<float>(1.0 / sum);
  for (std::int64_t c = 0; c < columns; ++c) p[c] *= scale;
  return largest + std::log(sum);
}

class SoftmaxCrossEntropyKernel : public Kernel {
 public:
  explicit SoftmaxCrossEntropyKernel(Rows size) : size_(size) {}
  void Bind(const Operands& operands) override {
    logits_ = operands.in<float>(0);
    labels_ = operands.in<std::int32_t>(1);
    loss_sum_ = operands.out<double>(0);
    probabilities_ = operands.out<float>(1);
  }
  Status Run(OutputMask) override {
    double sum = 0;
    for (std::int64_t m = 0; m < size_.rows; ++m) {
      const float* z = logits_ + m * size_.columns;
      sum += SoftmaxRow(z, size_.columns, probabilities_ + m * size_.columns) - z[labels_[m]];
    }
    *loss_sum_ = sum;
    return Status::Ok();
  }

 private:
  Rows size_;
  const float* logits_ = nullptr;
  const std::int32_t* labels_ = nullptr;
  double* loss_sum_ = nullptr;
  float* probabilities_ = nullptr;
};

class SoftmaxCrossEntropyGradientKernel : public Kernel {
 public:
  explicit SoftmaxCrossEntropyGradientKernel(Rows size) : size_(size) {}
  void Bind(const Operands& operands) override {
    probabilities_ = operands.in<float>(0);
    labels_ = operands.in<std::int32_t>(1);
    dloss_ = operands.in<float>(2);
    dlogits_ = operands.out<float>(0);
  }
  Status Run(OutputMask) override {
    const float weight = *dloss_;
    for (std::int64_t m = 0; m < size_.rows; ++m) {
      const float* p = probabilities_ + m * size_.columns;
      float* dz = dlogits_ + m * size_.columns;
      for (std::int64_t c = 0; c < size_.columns; ++c) dz[c] = p[c] * weight;
      dz[labels_[m]] -= weight;
    }
    return Status::Ok();
  }

 private:
  Rows size_;
  const float* probabilities_ = nullptr;
  const std::int32_t* labels_ = nullptr;
  const float* dloss_ = nullptr;
  float* dlogits_ = nullptr;
};

class MeanSquaredErrorKernel : public Kernel {
 public:
  explicit MeanSquaredErrorKernel(Rows size) : size_(size) {}
  void Bind(const Operands& operands) override {
    y_ = operands.in<float>(0);
    t_ = operands.in<float>(1);
    loss_sum_ = operands.out<double>(0);
  }
  Status Run(OutputMask) override {
    double sum = 0;
    for (std::int64_t i = 0; i < size_.rows * size_.columns; ++i) {
      sum += SquaredError(y_[i], t_[i]);
    }
    *loss_sum_ = sum / static_cast<double>(size_.columns);
    return Status::Ok();
  }

 private:
  Rows size_;
  const float* y_ = nullptr;
  const float* t_ = nullptr;
  double* loss_sum_ = nullptr;
};

class MeanSquaredErrorGradientKernel : public Kernel {
 public:
  explicit MeanSquaredErrorGradientKernel(Rows size) : size_(size) {}
  void Bind(const Operands& operands) override {
    y_ = operands.in<float>(0);
    t_ = operands.in<float>(1);
    dloss_ = operands.in<float>(2);
    dy_ = operands.out<float>(0);
  }
  Status Run(OutputMask) override {
    const float slope = SquaredErrorSlope(*dloss_, size_.columns);
    for (std::int64_t i = 0; i < size_.rows * size_.columns; ++i) {
      dy_[i] = SquaredErrorGradient(slope, y_[i], t_[i]);
    }
    return Status::Ok();
  }

 private:
  Rows size_;
  const float* y_ = nullptr;
  const float* t_ = nullptr;
  const float* dloss_ = nullptr;
  float* dy_ = nullptr;
};

template <typename K>
KernelResult MakeForRows(const KernelRequest& request) {
  return std::unique_ptr<Kernel>(std::make_unique<K>(RowsOf(request.inputs[0])));
}

}  // namespace

KernelResult MakeSoftmaxCrossEntropyCpu(const KernelRequest& request) {
  return MakeForRows<SoftmaxCrossEntropyKernel>(request);
}
KernelResult MakeSoftmaxCrossEntropyGradientCpu(const KernelRequest& request) {
  return MakeForRows<SoftmaxCrossEntropyGradientKernel>(request);
}
KernelResult MakeMeanSquaredErrorCpu(const KernelRequest& request) {
  return MakeForRows<MeanSquaredErrorKernel>(request);
}
KernelResult MakeMeanSquaredErrorGradientCpu(const KernelRequest& request) {
  return MakeForRows<MeanSquaredErrorGradientKernel>(request);
}

}  // namespace gaccd
