#include "daemon/device/cpu/winograd.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/matmul.h"
#include "daemon/device/cpu/onednn_compat.h"
#include "daemon/device/cpu/packed_weights.h"

namespace gaccd {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

// Tiles per block, approximately, so that the operands of a product stay in the caches.
constexpr std::int64_t kBlock = 128;

// Blocks of equal size. Odd, as planes a power of two apart would share cache lines.
std::int64_t TilesPerBlock(std::int64_t tiles) {
  const std::int64_t blocks = (tiles + kBlock - 1) / kBlock;
  return ((tiles + blocks - 1) / blocks) | 1;
}

// A weight [o, i, 3, 3] as 9 planes [in, out], with in x out consecutive.
Desc PlanesDesc(std::int64_t in, std::int64_t out, bool turned) {
  const std::int64_t count = in * out;
  if (turned) return Desc({in, out, 3, 3}, Type::f32, {out, 1, 3 * count, count});
  return Desc({out, in, 3, 3}, Type::f32, {1, out, 3 * count, count});
}

Desc WeightDesc(std::int64_t in, std::int64_t out) {
  return Desc({out, in, 3, 3}, Type::f32, Tag::oihw);
}

Status Failed(const ConvolutionSpec& spec, const dnnl::error& error) {
  return {ErrorKind::kInternal, StrCat("oneDNN ", ToText(spec), ": ", error.what())};
}

WinogradTiles TilesFor(ConvolutionKind kind, const ConvolutionSpec& spec) {
  if (kind != ConvolutionKind::kInputGradient) {
    return {spec.images, spec.image, spec.result, spec.padding};
  }
  return {spec.images, spec.result, spec.image, {2 - spec.padding[0], 2 - spec.padding[1]}};
}

}  // namespace

// Compares costs in scalar products, estimated from timings on a Zen 5 core.
bool WinogradSuits(ConvolutionKind kind, const ConvolutionSpec& spec) {
  using Pair = ConvolutionSpec::Pair;
  constexpr std::int64_t kOfTransformedValue = 9;
  constexpr std::int64_t kOfKernel = 300;
  const bool fits = spec.kernel == Pair{3, 3} && spec.stride == Pair{1, 1} &&
                    spec.dilation == Pair{1, 1} && spec.groups == 1 && !spec.bf16 &&
                    spec.in % kWinogradLanes == 0 && spec.out % kWinogradLanes == 0 &&
                    std::max(spec.padding[0], spec.padding[1]) <= 2;
  if (!fits) return false;
  const WinogradTiles tiles = TilesFor(kind, spec);
  const auto& written = kind == ConvolutionKind::kInputGradient ? spec.image : spec.result;
  const std::int64_t kernels = spec.in * spec.out;
  const std::int64_t direct = 9 * spec.images * written[0] * written[1] * kernels;
  const std::int64_t transformed = kWinogradPlanes * tiles.count();
  return transformed * (kernels + kOfTransformedValue * (spec.in + spec.out)) +
             kOfKernel * kernels <
         direct;
}

WinogradTiles::WinogradTiles(std::int64_t images, Pair read, Pair results, Pair padding)
    : images_(images),
      read_(read),
      results_(results),
      padding_(padding),
      rows_((results[0] + 1) / 2),
      columns_((results[1] + 1) / 2),
      block_(TilesPerBlock(images * rows_ * columns_)) {}

WinogradTiles::Tile WinogradTiles::At(std::int64_t tile) const {
  const std::int64_t row = tile / columns_;
  return {row / rows_, row % rows_, tile % columns_};
}

std::array<const float*, 16> WinogradTiles::Pixels(std::int64_t tile, const float* images,
                                                   std::int64_t channels,
                                                   const float* outside) const {
  const Tile at = At(tile);
  std::array<const float*, 16> pixels;
  for (std::int64_t p = 0; p < 16; ++p) {
    const std::int64_t y = 2 * at.i + p / 4 - padding_[0];
    const std::int64_t x = 2 * at.j + p % 4 - padding_[1];
    const bool inside = y >= 0 && y < read_[0] && x >= 0 && x < read_[1];
    pixels[static_cast<std::size_t>(p)] =
        inside ? images + ((at.image * read_[0] + y) * read_[1] + x) * channels : outside;
  }
  return pixels;
}

template <typename T>
std::array<T*, 4> WinogradTiles::Results(std::int64_t tile, T* results, std::int64_t channels,
                                         T* outside) const {
  const Tile at = At(tile);
  std::array<T*, 4> places;
  for (std::int64_t p = 0; p < 4; ++p) {
    const std::int64_t y = 2 * at.i + p / 2;
    const std::int64_t x = 2 * at.j + p % 2;
    const bool inside = y < results_[0] && x < results_[1];
    places[static_cast<std::size_t>(p)] =
        inside ? results + ((at.image * results_[0] + y) * results_[1] + x) * channels : outside;
  }
  return places;
}

WinogradConvolution::WinogradConvolution(const WinogradTiles& tiles, bool turned, std::int64_t in,
                                         std::int64_t out)
    : tiles_(tiles),
      turned_(turned),
      in_(in),
      out_(out),
      zeros_(static_cast<std::size_t>(in)),
      unused_(static_cast<std::size_t>(out)) {}

Result<WinogradConvolution> WinogradConvolution::Prepare(CpuContext& context, ConvolutionKind kind,
                                                         const ConvolutionSpec& spec,
                                                         const float* parameter) {
  const bool turned = kind == ConvolutionKind::kInputGradient;
  WinogradConvolution made(TilesFor(kind, spec), turned, turned ? spec.out : spec.in,
                           turned ? spec.in : spec.out);
  try {
    GACCD_RETURN_IF_ERROR(made.Make(context, parameter));
    return made;
  } catch (const dnnl::error& error) {
    return Failed(spec, error);
  }
}

Status WinogradConvolution::Make(CpuContext& context, const float* parameter) {
  const dnnl::engine& engine = context.engine();
  stream_ = context.stream();
  kernels_ = PackedWeight::Make(context, parameter,
                                turned_ ? WeightDesc(out_, in_) : WeightDesc(in_, out_),
                                PlanesDesc(in_, out_, turned_));
  const std::int64_t block = tiles_.block();
  const Desc pixels({kWinogradPlanes, block, in_}, Type::f32, Tag::abc);
  const Desc kernels({kWinogradPlanes, in_, out_}, Type::f32, Tag::abc);
  const Desc sums({kWinogradPlanes, block, out_}, Type::f32, Tag::abc);
  dnnl::primitive_attr own_scratch;
  own_scratch.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto desc = DescribeOperation<dnnl::matmul>(engine, own_scratch, pixels, kernels, sums);
  product_ = dnnl::matmul(desc);
  pixels_memory_ = dnnl::memory(pixels, engine, nullptr);
  kernels_memory_ = dnnl::memory(kernels, engine, nullptr);
  sums_memory_ = dnnl::memory(sums, engine, nullptr);
  product_scratch_ = dnnl::memory(desc.scratchpad_desc(), engine, nullptr);
  product_scratch_bytes_ = static_cast<std::int64_t>(desc.scratchpad_desc().get_size());
  args_ = {{DNNL_ARG_SRC, pixels_memory_.get()},
           {DNNL_ARG_WEIGHTS, kernels_memory_.get()},
           {DNNL_ARG_DST, sums_memory_.get()},
           {DNNL_ARG_SCRATCHPAD, product_scratch_.get()}};
  return Status::Ok();
}

std::int64_t WinogradConvolution::scratch_bytes() const {
  const std::int64_t values = in_ * out_ + tiles_.block() * (in_ + out_);
  return kernels_.scratch_bytes() + kWinogradPlanes * values * std::int64_t{sizeof(float)} +
         product_scratch_bytes_;
}

void WinogradConvolution::Bind(const ConvolutionOperands& operands) {
  // dx may be written.
  const void* const written = turned_ ? operands.x : operands.y;
  read_ = static_cast<const float*>(turned_ ? operands.y : operands.x);
  written_ = static_cast<float*>(const_cast<void*>(written));
  bias_ = operands.bias;
  kernels_.Bind(operands.weight, operands.scratch);
  kernel_planes_ = reinterpret_cast<float*>(static_cast<std::byte*>(operands.scratch) +
                                            kernels_.scratch_bytes());
  pixel_planes_ = kernel_planes_ + kWinogradPlanes * in_ * out_;
  sums_ = pixel_planes_ + kWinogradPlanes * tiles_.block() * in_;
  pixels_memory_.set_data_handle(pixel_planes_);
  kernels_memory_.set_data_handle(kernel_planes_);
  sums_memory_.set_data_handle(sums_);
  product_scratch_.set_data_handle(sums_ + kWinogradPlanes * tiles_.block() * out_);
}

Status WinogradConvolution::Run(bool /*add*/) {
  GACCD_RETURN_IF_ERROR(kernels_.Run());
  TransformKernels(static_cast<const float*>(kernels_.memory().get_data_handle()), in_ * out_,
                   turned_, kernel_planes_);
  const std::int64_t block = tiles_.block();
  for (std::int64_t first = 0; first < tiles_.count(); first += block) {
    // The last block has fewer tiles; results beyond them are not read.
    const std::int64_t tiles = std::min(block, tiles_.count() - first);
    for (std::int64_t t = 0; t < tiles; ++t) {
      TransformPixels(tiles_.Pixels(first + t, read_, in_, zeros_.data()), in_,
                      pixel_planes_ + t * in_, block * in_);
    }
    GACCD_RETURN_IF_ERROR(
        DnnlStatus(dnnl_primitive_execute(product_.get(), stream_.get(),
                                          static_cast<int>(args_.size()), args_.data()),
                   "oneDNN product of tiles"));
    for (std::int64_t t = 0; t < tiles; ++t) {
      TransformResults(sums_ + t * out_, block * out_, out_, bias_,
                       tiles_.Results(first + t, written_, out_, unused_.data()));
    }
  }
  return Status::Ok();
}

WinogradWeightGradient::WinogradWeightGradient(const WinogradTiles& tiles, std::int64_t in,
                                               std::int64_t out)
    : tiles_(tiles), in_(in), out_(out), zeros_(static_cast<std::size_t>(std::max(in, out))) {}

Result<WinogradWeightGradient> WinogradWeightGradient::Prepare(CpuContext& context,
                                                               const ConvolutionSpec& spec) {
  GACCD_RETURN_IF_ERROR(PrepareTransposedProducts());
  WinogradWeightGradient made(TilesFor(ConvolutionKind::kWeightGradient, spec), spec.in, spec.out);
  try {
    made.stream_ = context.stream();
    made.planes_memory_ =
        dnnl::memory(PlanesDesc(spec.in, spec.out, /*turned=*/false), context.engine(), nullptr);
    made.gradient_memory_ = dnnl::memory(WeightDesc(spec.in, spec.out), context.engine(), nullptr);
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    dnnl::primitive_attr adding;
    adding.set_post_ops(sum);
    made.overwrite_ = dnnl::reorder(made.planes_memory_, made.gradient_memory_);
    made.add_ = dnnl::reorder(made.planes_memory_, made.gradient_memory_, adding);
    made.args_ = {{DNNL_ARG_FROM, made.planes_memory_.get()},
                  {DNNL_ARG_TO, made.gradient_memory_.get()}};
    return made;
  } catch (const dnnl::error& error) {
    return Failed(spec, error);
  }
}

std::int64_t WinogradWeightGradient::scratch_bytes() const {
  const std::int64_t values = in_ * out_ + tiles_.block() * (in_ + out_);
  return kWinogradPlanes * values * std::int64_t{sizeof(float)};
}

void WinogradWeightGradient::Bind(const ConvolutionOperands& operands) {
  x_ = static_cast<const float*>(operands.x);
  dy_ = static_cast<const float*>(operands.y);
  planes_ = static_cast<float*>(operands.scratch);
  pixel_planes_ = planes_ + kWinogradPlanes * in_ * out_;
  gradient_planes_ = pixel_planes_ + kWinogradPlanes * tiles_.block() * in_;
  planes_memory_.set_data_handle(planes_);
  gradient_memory_.set_data_handle(operands.weight_gradient);
}

Status WinogradWeightGradient::Run(bool add) {
  const std::int64_t block = tiles_.block();
  for (std::int64_t first = 0; first < tiles_.count(); first += block) {
    const std::int64_t tiles = std::min(block, tiles_.count() - first);
    for (std::int64_t t = 0; t < tiles; ++t) {
      TransformPixels(tiles_.Pixels(first + t, x_, in_, zeros_.data()), in_,
                      pixel_planes_ + t * in_, block * in_);
      const float* const zeros = zeros_.data();
      TransformResultGradients(tiles_.Results(first + t, dy_, out_, zeros), out_,
                               gradient_planes_ + t * out_, block * out_);
    }
    for (std::int64_t p = 0; p < kWinogradPlanes; ++p) {
      GACCD_RETURN_IF_ERROR(TransposedProduct(pixel_planes_ + p * block * in_,
                                              gradient_planes_ + p * block * out_, in_, out_, tiles,
                                              /*accumulate=*/first > 0, planes_ + p * in_ * out_));
    }
  }
  TransformKernelGradients(planes_, in_ * out_);
  return DnnlStatus(dnnl_primitive_execute((add ? add_ : overwrite_).get(), stream_.get(),
                                           static_cast<int>(args_.size()), args_.data()),
                    "oneDNN gradients of kernels");
}

}  // namespace gaccd
