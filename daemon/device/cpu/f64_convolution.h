// F64Convolution: a convolution of f32 images, or one of its gradients, whose sums are f64
// (f64_product.h). Images, weights and kinds are those of Convolution.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/device/cpu/convolution.h"
#include "daemon/device/cpu/im2col.h"

namespace gaccd {

class F64Convolution {
 public:
  // REQUIRES: not bf16.
  F64Convolution(ConvolutionKind kind, const ConvolutionSpec& spec);

  [[nodiscard]] static std::int64_t scratch_bytes();
  // See Convolution.
  void Bind(const ConvolutionOperands& operands) { operands_ = operands; }
  Status Run(bool add = false);

 private:
  void RunForward(std::int64_t group) const;
  void RunInputGradient(std::int64_t group) const;
  void RunWeightGradient(std::int64_t group, bool add) const;

  // to[i] = value `first` + i of those that a result reads: [KH KW, channels of a group].
  void GatherColumns(std::int64_t group, std::int64_t row, std::int64_t first, std::int64_t count,
                     double* to) const;
  // Channels of a group.
  [[nodiscard]] std::int64_t in() const { return spec_.in / spec_.groups; }
  [[nodiscard]] std::int64_t out() const { return spec_.out / spec_.groups; }
  [[nodiscard]] std::int64_t taps() const { return spec_.kernel[0] * spec_.kernel[1]; }
  [[nodiscard]] std::int64_t rows() const;  // results of all images

  ConvolutionKind kind_;
  ConvolutionSpec spec_;
  TapPixels pixels_;
  ConvolutionOperands operands_;
};

}  // namespace gaccd
