#include "daemon/device/cpu/im2col.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/onednn.h"

namespace gaccd {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

constexpr std::int64_t kBlock = 256;  // rows

std::int64_t BlockRows(const Im2col& im2col) { return std::min(kBlock, im2col.rows()); }

std::int64_t ColumnBytes(const Im2col& im2col) {
  return AlignedBytes(BlockRows(im2col) * im2col.columns() * std::int64_t{sizeof(std::uint16_t)});
}

std::int64_t ScratchBytes(const std::vector<Matmul>& products) {
  std::int64_t bytes = 0;
  for (const Matmul& product : products) bytes = std::max(bytes, product.scratch_bytes());
  return AlignedBytes(bytes);
}

}  // namespace

bool Im2colSuits(ConvolutionKind kind, const ConvolutionSpec& spec) {
  if (!spec.bf16 || spec.groups != 1) return false;
  const bool is_input_gradient = kind == ConvolutionKind::kInputGradient;
  const std::int64_t read = is_input_gradient ? spec.out : spec.in;
  const std::int64_t written = is_input_gradient ? spec.in : spec.out;
  // whole blocks of the packed layout
  if (read % 32 != 0 || written % 64 != 0) return false;
  const CpuBf16 bf16 = DetectCpuBf16();
  // With vdpbf16ps alone, oneDNN's other convolutions are faster.
  const bool is_weight_gradient = kind == ConvolutionKind::kWeightGradient;
  return bf16 == CpuBf16::kAmx || (is_weight_gradient && bf16 == CpuBf16::kAvx512Bf16);
}

TapPixels::TapPixels(ConvolutionKind kind, const ConvolutionSpec& spec)
    : read_(spec.image), results_(spec.result), kernel_(spec.kernel) {
  const bool is_input_gradient = kind == ConvolutionKind::kInputGradient;
  if (is_input_gradient) std::swap(read_, results_);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    for (std::int64_t at = 0; at < results_[axis]; ++at) {
      for (std::int64_t tap = 0; tap < kernel_[axis]; ++tap) {
        const std::int64_t distance = tap * spec.dilation[axis] - spec.padding[axis];
        std::int64_t pixel = at * spec.stride[axis] + distance;
        if (is_input_gradient) {
          const bool is_result = (at - distance) % spec.stride[axis] == 0;
          pixel = is_result ? (at - distance) / spec.stride[axis] : -1;
        }
        pixels_[axis].push_back(pixel < read_[axis] ? std::max<std::int64_t>(pixel, -1) : -1);
      }
    }
  }
}

Im2col::Im2col(ConvolutionKind kind, const ConvolutionSpec& spec)
    : images_(spec.images),
      channels_(kind == ConvolutionKind::kInputGradient ? spec.out : spec.in),
      kernel_(spec.kernel),
      pixels_(kind, spec) {}

void Im2col::GatherRow(const std::uint16_t* image, std::int64_t p, std::int64_t q,
                       std::uint16_t* row) const {
  const std::int64_t* const ys = pixels_.At(0, p);
  const std::int64_t* const xs = pixels_.At(1, q);
  const std::size_t bytes = static_cast<std::size_t>(channels_) * sizeof(std::uint16_t);
  for (std::int64_t i = 0; i < kernel_[0]; ++i) {
    for (std::int64_t j = 0; j < kernel_[1]; ++j, row += channels_) {
      if (ys[i] < 0 || xs[j] < 0) {
        std::memset(row, 0, bytes);
      } else {
        std::memcpy(row, image + (ys[i] * pixels_.read()[1] + xs[j]) * channels_, bytes);
      }
    }
  }
}

void Im2col::Gather(const std::uint16_t* images, std::int64_t first_row, std::int64_t count,
                    std::uint16_t* columns) const {
  const std::int64_t image_rows = pixels_.results()[0] * pixels_.results()[1];
  const std::int64_t image_size = pixels_.read()[0] * pixels_.read()[1] * channels_;
  for (std::int64_t row = first_row; row < first_row + count; ++row, columns += this->columns()) {
    const std::int64_t at = row % image_rows;
    GatherRow(images + row / image_rows * image_size, at / pixels_.results()[1],
              at % pixels_.results()[1], columns);
  }
}

Im2colConvolution::Im2colConvolution(ConvolutionKind kind, const ConvolutionSpec& spec)
    : im2col_(kind, spec),
      is_gradient_(kind == ConvolutionKind::kInputGradient),
      written_channels_(is_gradient_ ? spec.in : spec.out) {}

Result<Im2colConvolution> Im2colConvolution::Prepare(CpuContext& context, ConvolutionKind kind,
                                                     const ConvolutionSpec& spec,
                                                     const float* parameter) {
  try {
    Im2colConvolution made(kind, spec);
    GACCD_RETURN_IF_ERROR(made.Make(context, spec, parameter));
    return made;
  } catch (const dnnl::error& error) {
    return Status(ErrorKind::kInternal, StrCat("oneDNN ", ToText(spec), ": ", error.what()));
  }
}

Status Im2colConvolution::Make(CpuContext& context, const ConvolutionSpec& spec,
                               const float* parameter) {
  // As a convolution from the channels that are read to those that are written, W is the matrix
  // [taps * read, written] in the layout of MatmulSpec::blocked_b.
  const dnnl::memory::dims dims = {written_channels_, is_gradient_ ? spec.out : spec.in,
                                   spec.kernel[0], spec.kernel[1]};
  weight_ = PackedWeight::Make(context, parameter,
                               Desc(dims, Type::f32, is_gradient_ ? Tag::iohw : Tag::oihw),
                               Desc(dims, Type::bf16, Tag::AcdB16b64a2b));
  const std::int64_t rows = BlockRows(im2col_);
  for (const std::int64_t m : {rows, im2col_.rows() % rows}) {
    if (m == 0) continue;
    GACCD_ASSIGN_OR_RETURN(Matmul product, Matmul::Prepare(context, {.m = m,
                                                                     .n = written_channels_,
                                                                     .k = im2col_.columns(),
                                                                     .bias = spec.bias,
                                                                     .bf16 = true,
                                                                     .blocked_b = true}));
    products_.push_back(std::move(product));
  }
  return Status::Ok();
}

std::int64_t Im2colConvolution::scratch_bytes() const {
  return weight_.scratch_bytes() + ScratchBytes(products_) + ColumnBytes(im2col_);
}

void Im2colConvolution::Bind(const ConvolutionOperands& operands) {
  // dx may be written.
  read_ = static_cast<const std::uint16_t*>(is_gradient_ ? operands.y : operands.x);
  written_ = static_cast<float*>(const_cast<void*>(is_gradient_ ? operands.x : operands.y));
  bias_ = operands.bias;
  weight_.Bind(operands.weight, operands.scratch);
  product_scratch_ = static_cast<std::byte*>(operands.scratch) + weight_.scratch_bytes();
  columns_ = reinterpret_cast<std::uint16_t*>(product_scratch_ + ScratchBytes(products_));
}

Status Im2colConvolution::Run(bool /*add*/) {
  GACCD_RETURN_IF_ERROR(weight_.Run());
  const std::int64_t block = BlockRows(im2col_);
  for (std::int64_t first = 0; first < im2col_.rows(); first += block) {
    const std::int64_t rows = std::min(block, im2col_.rows() - first);
    im2col_.Gather(read_, first, rows, columns_);
    Matmul& product = rows == block ? products_.front() : products_.back();
    product.Bind(columns_, weight_.memory().get_data_handle(), bias_,
                 written_ + first * written_channels_, product_scratch_);
    GACCD_RETURN_IF_ERROR(product.Run());
  }
  return Status::Ok();
}

Im2colWeightGradient::Im2colWeightGradient(const ConvolutionSpec& spec)
    : im2col_(ConvolutionKind::kWeightGradient, spec), in_(spec.in), out_(spec.out) {}

Result<Im2colWeightGradient> Im2colWeightGradient::Prepare(CpuContext& context,
                                                           const ConvolutionSpec& spec) {
  Im2colWeightGradient made(spec);
  const std::int64_t rows = BlockRows(made.im2col_);
  for (const std::int64_t k : {rows, rows, made.im2col_.rows() % rows}) {
    if (k == 0) continue;
    GACCD_ASSIGN_OR_RETURN(Matmul product,
                           Matmul::Prepare(context, {.m = spec.out,
                                                     .n = made.im2col_.columns(),
                                                     .k = k,
                                                     .transpose_a = true,
                                                     .accumulate = !made.products_.empty(),
                                                     .bf16 = true}));
    made.products_.push_back(std::move(product));
  }
  return made;
}

std::int64_t Im2colWeightGradient::scratch_bytes() const {
  return AlignedBytes(out_ * im2col_.columns() * std::int64_t{sizeof(float)}) +
         ScratchBytes(products_) + ColumnBytes(im2col_);
}

void Im2colWeightGradient::Bind(const ConvolutionOperands& operands) {
  x_ = static_cast<const std::uint16_t*>(operands.x);
  dy_ = static_cast<const std::uint16_t*>(operands.y);
  gradient_ = operands.weight_gradient;
  sums_ = static_cast<float*>(operands.scratch);
  product_scratch_ = static_cast<std::byte*>(operands.scratch) +
                     AlignedBytes(out_ * im2col_.columns() * std::int64_t{sizeof(float)});
  columns_ = reinterpret_cast<std::uint16_t*>(product_scratch_ + ScratchBytes(products_));
}

Status Im2colWeightGradient::Run(bool add) {
  const std::int64_t block = BlockRows(im2col_);
  for (std::int64_t first = 0; first < im2col_.rows(); first += block) {
    const std::int64_t rows = std::min(block, im2col_.rows() - first);
    im2col_.Gather(x_, first, rows, columns_);
    Matmul& product = rows < block ? products_.back() : products_[first == 0 ? 0 : 1];
    product.Bind(dy_ + first * out_, columns_, nullptr, sums_, product_scratch_);
    GACCD_RETURN_IF_ERROR(product.Run());
  }
  const std::int64_t columns = im2col_.columns();
  WriteKernelGradients(
      {.out = out_, .in = in_, .taps = columns / in_, .out_step = columns, .tap_step = in_}, sums_,
      add, gradient_);
  return Status::Ok();
}

void WriteKernelGradients(const TapSums& size, const float* sums, bool add, float* gradient) {
  float* to = gradient;
  for (std::int64_t o = 0; o < size.out; ++o) {
    for (std::int64_t c = 0; c < size.in; ++c, to += size.taps) {
      const float* const from = sums + o * size.out_step + c;
      for (std::int64_t t = 0; t < size.taps; ++t) {
        to[t] = add ? to[t] + from[t * size.tap_step] : from[t * size.tap_step];
      }
    }
  }
}

}  // namespace gaccd
