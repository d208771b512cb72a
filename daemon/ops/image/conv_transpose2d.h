// ConvTranspose2d, as in PyTorch: x [N, H, W, C], weight [C, O / groups, KH, KW], y [N, OH, OW, O]
//   OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1, and likewise OW
// The function is conv2d's input gradient (conv2d.h) with this weight, and uses its kernels. Hence
//   dx = conv2d(dy, weight),  dweight = conv2d_weight_gradient(x, dy)
#pragma once

#include "daemon/ops/image/conv2d.h"

namespace gaccd {

// Inputs: x, weight. Output: images of the size `image`, which must be [OH, OW] for some
// output_padding.
class ConvTranspose2d : public Conv2dInputGradient {
 public:
  using Conv2dInputGradient::Conv2dInputGradient;

  Status Gradient(GradientScope& scope) const override;
};

}  // namespace gaccd
