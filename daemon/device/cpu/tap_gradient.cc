#include "daemon/device/cpu/tap_gradient.h"

#include <algorithm>
#include <cstring>

#include "daemon/device/cpu/im2col.h"

namespace gaccd {
namespace {

constexpr std::int64_t kTapRows = 512;  // approximately

std::int64_t Count(const ConvolutionSpec::Pair& sizes) { return sizes[0] * sizes[1]; }

// Pairs of a result and the pixel that a tap reads, along an axis.
std::int64_t PixelsInside(const TapPixels& pixels, const ConvolutionSpec& spec, std::size_t axis) {
  std::int64_t inside = 0;
  for (std::int64_t at = 0; at < spec.result[axis]; ++at) {
    const std::int64_t* const taps = pixels.At(axis, at);
    inside += std::count_if(taps, taps + spec.kernel[axis], [](auto pixel) { return pixel >= 0; });
  }
  return inside;
}

}  // namespace

bool TapGradientSuits(const ConvolutionSpec& spec) {
  constexpr std::int64_t kFewestChannels = 128;  // for products per tap
  const TapPixels pixels(ConvolutionKind::kWeightGradient, spec);
  const std::int64_t inside = PixelsInside(pixels, spec, 0) * PixelsInside(pixels, spec, 1);
  const std::int64_t all = Count(spec.result) * Count(spec.kernel);
  return std::min(spec.in, spec.out) >= kFewestChannels && inside * 10 < all * 9;
}

TapWeightGradient::TapWeightGradient(const ConvolutionSpec& spec)
    : images_(spec.images),
      in_(spec.in),
      out_(spec.out),
      x_pixels_(Count(spec.image)),
      dy_pixels_(Count(spec.result)),
      taps_(static_cast<std::size_t>(Count(spec.kernel))) {
  const TapPixels pixels(ConvolutionKind::kWeightGradient, spec);
  for (std::int64_t at = 0; at < dy_pixels_; ++at) {
    const std::int64_t* const ys = pixels.At(0, at / spec.result[1]);
    const std::int64_t* const xs = pixels.At(1, at % spec.result[1]);
    for (std::size_t tap = 0; tap < taps_.size(); ++tap) {
      const std::int64_t y = ys[static_cast<std::int64_t>(tap) / spec.kernel[1]];
      const std::int64_t x = xs[static_cast<std::int64_t>(tap) % spec.kernel[1]];
      if (y >= 0 && x >= 0) taps_[tap].push_back({.x = y * spec.image[1] + x, .dy = at});
    }
  }
}

std::int64_t TapWeightGradient::BlockImages() const {
  return std::clamp<std::int64_t>(kTapRows / dy_pixels_, 1, images_);
}

Result<TapWeightGradient> TapWeightGradient::Prepare(CpuContext& context,
                                                     const ConvolutionSpec& spec) {
  TapWeightGradient made(spec);
  const std::int64_t block = made.BlockImages();
  for (const std::vector<Pixels>& tap : made.taps_) {
    for (const std::int64_t images : {block, spec.images % block}) {
      for (const bool add : {false, true}) {
        const std::int64_t rows = images * static_cast<std::int64_t>(tap.size());
        if (rows == 0 || made.products_.contains({rows, add})) continue;
        GACCD_ASSIGN_OR_RETURN(Matmul product, Matmul::Prepare(context, {.m = spec.out,
                                                                         .n = spec.in,
                                                                         .k = rows,
                                                                         .transpose_a = true,
                                                                         .accumulate = add,
                                                                         .bf16 = true}));
        made.product_scratch_bytes_ =
            std::max(made.product_scratch_bytes_, AlignedBytes(product.scratch_bytes()));
        made.products_.emplace(std::pair(rows, add), std::move(product));
      }
    }
  }
  return made;
}

std::int64_t TapWeightGradient::SumBytes() const {
  return AlignedBytes(static_cast<std::int64_t>(taps_.size()) * out_ * in_ *
                      std::int64_t{sizeof(float)});
}

std::int64_t TapWeightGradient::scratch_bytes() const {
  const std::int64_t rows = BlockImages() * dy_pixels_;
  return SumBytes() + product_scratch_bytes_ + rows * (in_ + out_) * std::int64_t{sizeof(Half)};
}

void TapWeightGradient::Bind(const ConvolutionOperands& operands) {
  x_ = static_cast<const Half*>(operands.x);
  dy_ = static_cast<const Half*>(operands.y);
  gradient_ = operands.weight_gradient;
  sums_ = static_cast<float*>(operands.scratch);
  product_scratch_ = static_cast<std::byte*>(operands.scratch) + SumBytes();
  x_rows_ = reinterpret_cast<Half*>(product_scratch_ + product_scratch_bytes_);
  dy_rows_ = x_rows_ + BlockImages() * dy_pixels_ * in_;
}

// The sums of a tap over images [first, last).
Status TapWeightGradient::RunTap(std::size_t tap, std::int64_t first, std::int64_t last) {
  const auto copy = [](const Half* from, std::int64_t channels, Half* to) {
    std::memcpy(to, from, static_cast<std::size_t>(channels) * sizeof(Half));
    return to + channels;
  };
  Half* x_row = x_rows_;
  Half* dy_row = dy_rows_;
  for (std::int64_t image = first; image < last; ++image) {
    for (const Pixels& at : taps_[tap]) {
      x_row = copy(x_ + (image * x_pixels_ + at.x) * in_, in_, x_row);
      dy_row = copy(dy_ + (image * dy_pixels_ + at.dy) * out_, out_, dy_row);
    }
  }
  const std::int64_t rows = (last - first) * static_cast<std::int64_t>(taps_[tap].size());
  Matmul& product = products_.at({rows, first > 0});
  product.Bind(dy_rows_, x_rows_, nullptr, sums_ + static_cast<std::int64_t>(tap) * out_ * in_,
               product_scratch_);
  return product.Run();
}

Status TapWeightGradient::Run(bool add) {
  const std::int64_t block = BlockImages();
  for (std::size_t tap = 0; tap < taps_.size(); ++tap) {
    if (taps_[tap].empty()) {
      std::fill_n(sums_ + static_cast<std::int64_t>(tap) * out_ * in_, out_ * in_, 0.0F);
      continue;
    }
    for (std::int64_t first = 0; first < images_; first += block) {
      GACCD_RETURN_IF_ERROR(RunTap(tap, first, std::min(first + block, images_)));
    }
  }
  WriteKernelGradients({.out = out_,
                        .in = in_,
                        .taps = static_cast<std::int64_t>(taps_.size()),
                        .out_step = in_,
                        .tap_step = out_ * in_},
                       sums_, add, gradient_);
  return Status::Ok();
}

}  // namespace gaccd
