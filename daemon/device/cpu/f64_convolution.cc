#include "daemon/device/cpu/f64_convolution.h"

#include <algorithm>

#include "daemon/device/cpu/f64_product.h"

namespace gaccd {

F64Convolution::F64Convolution(ConvolutionKind kind, const ConvolutionSpec& spec)
    : kind_(kind), spec_(spec), pixels_(kind, spec) {}

std::int64_t F64Convolution::scratch_bytes() { return kF64ScratchBytes; }

std::int64_t F64Convolution::rows() const {
  return spec_.images * pixels_.results()[0] * pixels_.results()[1];
}

void F64Convolution::GatherColumns(std::int64_t group, std::int64_t row, std::int64_t first,
                                   std::int64_t count, double* to) const {
  const bool reads_y = kind_ == ConvolutionKind::kInputGradient;
  const std::int64_t channels = reads_y ? out() : in();
  const auto* const images = static_cast<const float*>(reads_y ? operands_.y : operands_.x);
  const auto [height, width] = pixels_.read();
  const std::int64_t image = row / (pixels_.results()[0] * pixels_.results()[1]);
  const std::int64_t* const ys = pixels_.At(0, row / pixels_.results()[1] % pixels_.results()[0]);
  const std::int64_t* const xs = pixels_.At(1, row % pixels_.results()[1]);
  while (count > 0) {
    const std::int64_t tap = first / channels;
    const std::int64_t channel = first % channels;
    const std::int64_t values = std::min(count, channels - channel);
    const std::int64_t y = ys[tap / spec_.kernel[1]];
    const std::int64_t x = xs[tap % spec_.kernel[1]];
    if (y < 0 || x < 0) {
      std::fill_n(to, values, 0.0);
    } else {
      const std::int64_t pixel = (image * height + y) * width + x;
      std::copy_n(images + (pixel * spec_.groups + group) * channels + channel, values, to);
    }
    to += values;
    first += values;
    count -= values;
  }
}

// y [rows, O] = columns(x) [rows, KH KW C] W [KH KW C, O] + bias
void F64Convolution::RunForward(std::int64_t group) const {
  const float* const weight = operands_.weight + group * out() * in() * taps();
  const float* const bias = operands_.bias;
  auto* const y = static_cast<float*>(const_cast<void*>(operands_.y));
  F64Product(
      rows(), out(), taps() * in(),
      [&](std::int64_t row, std::int64_t first, std::int64_t count, double* to) {
        GatherColumns(group, row, first, count, to);
      },
      [&](std::int64_t l, std::int64_t first, std::int64_t count, double* to) {
        const float* const from = weight + l % in() * taps() + l / in();
        for (std::int64_t j = 0; j < count; ++j) to[j] = from[(first + j) * in() * taps()];
      },
      [&](std::int64_t row, std::int64_t first, std::int64_t count, const double* sums) {
        const std::int64_t channel = group * out() + first;
        for (std::int64_t j = 0; j < count; ++j) {
          const double offset = bias == nullptr ? 0.0 : bias[channel + j];
          y[row * spec_.out + channel + j] = static_cast<float>(sums[j] + offset);
        }
      },
      static_cast<double*>(operands_.scratch));
}

// dx [rows, C] = columns(dy) [rows, KH KW O] W [KH KW O, C]
void F64Convolution::RunInputGradient(std::int64_t group) const {
  const float* const weight = operands_.weight + group * out() * in() * taps();
  auto* const dx = static_cast<float*>(const_cast<void*>(operands_.x));
  F64Product(
      rows(), in(), taps() * out(),
      [&](std::int64_t row, std::int64_t first, std::int64_t count, double* to) {
        GatherColumns(group, row, first, count, to);
      },
      [&](std::int64_t l, std::int64_t first, std::int64_t count, double* to) {
        const float* const from = weight + l % out() * in() * taps() + l / out();
        for (std::int64_t j = 0; j < count; ++j) to[j] = from[(first + j) * taps()];
      },
      [&](std::int64_t row, std::int64_t first, std::int64_t count, const double* sums) {
        std::copy_n(sums, count, dx + row * spec_.in + group * in() + first);
      },
      static_cast<double*>(operands_.scratch));
}

// dW [O, KH KW C] = or += dy^T [O, rows] columns(x) [rows, KH KW C]
void F64Convolution::RunWeightGradient(std::int64_t group, bool add) const {
  const auto* const dy = static_cast<const float*>(operands_.y);
  float* const gradient = operands_.weight_gradient + group * out() * in() * taps();
  F64Product(
      out(), taps() * in(), rows(),
      [&](std::int64_t channel, std::int64_t first, std::int64_t count, double* to) {
        const float* const from = dy + first * spec_.out + group * out() + channel;
        for (std::int64_t l = 0; l < count; ++l) to[l] = from[l * spec_.out];
      },
      [&](std::int64_t row, std::int64_t first, std::int64_t count, double* to) {
        GatherColumns(group, row, first, count, to);
      },
      [&](std::int64_t channel, std::int64_t first, std::int64_t count, const double* sums) {
        float* const to = gradient + channel * in() * taps();
        for (std::int64_t j = 0; j < count; ++j) {
          float& value = to[(first + j) % in() * taps() + (first + j) / in()];
          value = static_cast<float>(add ? value + sums[j] : sums[j]);
        }
      },
      static_cast<double*>(operands_.scratch));
}

Status F64Convolution::Run(bool add) {
  for (std::int64_t group = 0; group < spec_.groups; ++group) {
    switch (kind_) {
      case ConvolutionKind::kForward:
        RunForward(group);
        break;
      case ConvolutionKind::kInputGradient:
        RunInputGradient(group);
        break;
      case ConvolutionKind::kWeightGradient:
        RunWeightGradient(group, add);
        break;
    }
  }
  return Status::Ok();
}

}  // namespace gaccd
