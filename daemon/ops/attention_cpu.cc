// Attention, head by head: what a head reads is packed first, so that tiles lie close together
// whatever the distance between rows of qkv.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "collectives/base/simd.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/math.h"
#include "daemon/ops/row_reductions.h"
#include "daemon/ops/tile_product_cpu.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Rows and keys of a tile: a multiple of what TileProduct takes at once.
constexpr std::int64_t kTile = 48;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sizes {
  std::int64_t sequences, heads, length, width;  // width: D
  std::int64_t step;                             // between rows of q, k and v
  bool causal;
  float scale;

  [[nodiscard]] std::int64_t columns() const { return heads * width; }
  [[nodiscard]] std::int64_t padded() const { return (length + kTile - 1) / kTile * kTile; }
  // How many of the keys from `key` on row i sees, up to a tile; the sequence has `known` rows.
  [[nodiscard]] std::int64_t Seen(std::int64_t i, std::int64_t key, std::int64_t known) const {
    const std::int64_t end = causal ? std::min(i + 1, known) : known;
    return std::clamp<std::int64_t>(end - key, 0, kTile);
  }
};

// y: what is, or has the shape of, the output.
Sizes SizesOf(const AttentionOptions& options, const ValueSpec& y, const ValueSpec& q) {
  const std::int64_t width = y.shape[1] / options.heads;
  return {.sequences = y.shape[0] / options.length,
          .heads = options.heads,
          .length = options.length,
          .width = width,
          .step = q.shape[1],
          .causal = options.causal,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)))};
}

std::int64_t LengthOf(const std::int32_t* lengths, std::int64_t sequence, std::int64_t most) {
  return lengths == nullptr ? most : std::clamp<std::int64_t>(lengths[sequence], 0, most);
}

void CopyRows(const float* from, std::int64_t from_step, std::int64_t rows, std::int64_t width,
              float* to, std::int64_t to_step) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::copy_n(from + i * from_step, width, to + i * to_step);
}

// Tile t of the result is [width, kTile]: the rows t kTile, ... of `from`, transposed. 0 beyond
// the last row.
void TransposeTiles(const float* from, std::int64_t from_step, std::int64_t rows,
                    std::int64_t width, float* to) {
  for (std::int64_t key = 0; key < rows; key += kTile) {
    const std::int64_t count = std::min(kTile, rows - key);
    for (std::int64_t d = 0; d < width; ++d, to += kTile) {
      for (std::int64_t j = 0; j < count; ++j) to[j] = from[(key + j) * from_step + d];
      std::fill(to + count, to + kTile, 0.0F);
    }
  }
}

// The sums of a row are kept in so many parts until the row is done.
constexpr std::int64_t kLanes = 16;

// One row of a tile: s becomes exp(scale s - top) for the first `seen` keys and 0 for the others.
// `top` is the largest value of the row so far and `sums`, added up, its terms. What was summed
// relative to the former top is to be multiplied by the result.
GACCD_SIMD_CLONES
float SoftmaxRow(float* s, std::int64_t seen, float scale, float& top, float* sums) {
  std::fill(s + seen, s + kTile, -kInfinity);
  const float of_tile = scale * LargestOf(s, kTile);
  const float new_top = of_tile <= top ? top : of_tile;
  for (std::int64_t j = 0; j < kTile; ++j) s[j] = Exp(scale * s[j] - new_top);
  const float factor = Exp(top - new_top);
  for (std::int64_t l = 0; l < kLanes; ++l) {
    sums[l] = sums[l] * factor + (s[l] + s[l + kLanes] + s[l + 2 * kLanes]);
  }
  top = new_top;
  return factor;
}
static_assert(kTile == 3 * kLanes);

GACCD_SIMD_CLONES
void Multiply(float* values, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// One row of a tile of the backward: s becomes P, dp becomes scale dS.
GACCD_SIMD_CLONES
void GradientRow(float* s, float* dp, std::int64_t seen, float scale, float lse, float delta) {
  std::fill(s + seen, s + kTile, -kInfinity);
  for (std::int64_t j = 0; j < kTile; ++j) {
    s[j] = Exp(scale * s[j] - lse);
    dp[j] = s[j] * (dp[j] - delta) * scale;
  }
}

GACCD_SIMD_CLONES
float Dot(const float* a, const float* b, std::int64_t count) {
  return SumOf(count, [a, b](std::int64_t i) { return a[i] * b[i]; });
}

// q, k and v, or their gradients, from a row of a head on.
template <typename T>
struct Parts {
  T *q, *k, *v;

  // `all`: qkv alone, or three.
  static Parts Of(std::span<void* const> all, bool packed, const Sizes& z, std::int64_t row,
                  std::int64_t head) {
    const std::int64_t at = row * z.step + head * z.width;
    auto* q = static_cast<T*>(all[0]);
    return {q + at, (packed ? q + z.columns() : static_cast<T*>(all[1])) + at,
            (packed ? q + 2 * z.columns() : static_cast<T*>(all[2])) + at};
  }
};

// Memory for one head at a time.
struct ForwardScratch {
  float *q, *keys, *v, *y, *s, *tops, *sums;

  static std::int64_t Elements(const Sizes& z) {
    return 4 * z.padded() * z.width + kTile * kTile + kTile + kTile * kLanes;
  }
  ForwardScratch(const Sizes& z, void* memory)
      : q(static_cast<float*>(memory)),
        keys(q + z.padded() * z.width),
        v(keys + z.padded() * z.width),
        y(v + z.padded() * z.width),
        s(y + z.padded() * z.width),
        tops(s + kTile * kTile),
        sums(tops + kTile) {}
};

// y and lse of the rows [first, first + rows) of a head that has `known` of them.
void ForwardTile(const Sizes& z, const ForwardScratch& at, std::int64_t first, std::int64_t rows,
                 std::int64_t known, float* lse) {
  const std::int64_t d = z.width;
  float* y = at.y + first * d;
  std::fill_n(at.tops, rows, -kInfinity);
  std::fill_n(at.sums, rows * kLanes, 0.0F);
  std::fill_n(y, rows * d, 0.0F);
  const std::int64_t keys = z.causal ? first + rows : known;
  for (std::int64_t key = 0; key < keys; key += kTile) {
    TileProduct({at.q + first * d, d, 1}, at.keys + key * d, kTile, at.s, kTile, rows, kTile, d,
                false);
    for (std::int64_t i = 0; i < rows; ++i) {
      const float factor = SoftmaxRow(at.s + i * kTile, z.Seen(first + i, key, known), z.scale,
                                      at.tops[i], at.sums + i * kLanes);
      if (factor != 1.0F) Multiply(y + i * d, d, factor);
    }
    TileProduct({at.s, kTile, 1}, at.v + key * d, d, y, d, rows, d, std::min(kTile, keys - key),
                true);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* sums = at.sums + i * kLanes;
    const float sum = SumOf(kLanes, [sums](std::int64_t l) { return sums[l]; });
    Multiply(y + i * d, d, 1.0F / sum);
    lse[first + i] = at.tops[i] + std::log(sum);
  }
}

void ForwardHead(const Sizes& z, const Parts<const float>& in, std::int64_t known,
                 const ForwardScratch& at, float* y, float* lse) {
  const std::int64_t d = z.width;
  CopyRows(in.q, z.step, known, d, at.q, d);
  TransposeTiles(in.k, z.step, known, d, at.keys);
  CopyRows(in.v, z.step, known, d, at.v, d);
  for (std::int64_t first = 0; first < known; first += kTile) {
    ForwardTile(z, at, first, std::min(kTile, known - first), known, lse);
  }
  std::fill_n(at.y + known * d, (z.length - known) * d, 0.0F);
  std::fill_n(lse + known, z.length - known, 0.0F);
  CopyRows(at.y, d, z.length, d, y, z.columns());
}

struct BackwardScratch {
  float *q, *k, *keys, *values, *dy, *dq, *dk, *dv, *s, *dp, *delta;

  static std::int64_t Elements(const Sizes& z) {
    return 8 * z.padded() * z.width + 2 * kTile * kTile + z.padded();
  }
  BackwardScratch(const Sizes& z, void* memory) {
    const std::int64_t size = z.padded() * z.width;
    auto* next = static_cast<float*>(memory);
    for (float** of_head : {&q, &k, &keys, &values, &dy, &dq, &dk, &dv}) {
      *of_head = next;
      next += size;
    }
    s = next;
    dp = s + kTile * kTile;
    delta = dp + kTile * kTile;
  }
};

// What the rows [first, first + rows) give to the gradients of the keys from `key` on, and these to
// theirs.
void BackwardTile(const Sizes& z, const BackwardScratch& at, std::int64_t first, std::int64_t key,
                  std::int64_t known, const float* lse) {
  const std::int64_t d = z.width;
  const std::int64_t rows = std::min(kTile, known - first);
  const std::int64_t keys = std::min(kTile, known - key);
  TileProduct({at.q + first * d, d, 1}, at.keys + key * d, kTile, at.s, kTile, rows, kTile, d,
              false);
  TileProduct({at.dy + first * d, d, 1}, at.values + key * d, kTile, at.dp, kTile, rows, kTile, d,
              false);
  for (std::int64_t i = 0; i < rows; ++i) {
    GradientRow(at.s + i * kTile, at.dp + i * kTile, z.Seen(first + i, key, known), z.scale,
                lse[first + i], at.delta[first + i]);
  }
  TileProduct({at.s, 1, kTile}, at.dy + first * d, d, at.dv + key * d, d, keys, d, rows, true);
  TileProduct({at.dp, 1, kTile}, at.q + first * d, d, at.dk + key * d, d, keys, d, rows, true);
  TileProduct({at.dp, kTile, 1}, at.k + key * d, d, at.dq + first * d, d, rows, d, keys, true);
}

void BackwardHead(const Sizes& z, const float* dy, const float* y, const float* lse,
                  const Parts<const float>& in, std::int64_t known, const BackwardScratch& at,
                  const Parts<float>& out) {
  const std::int64_t d = z.width;
  const std::int64_t columns = z.columns();
  CopyRows(in.q, z.step, known, d, at.q, d);
  CopyRows(in.k, z.step, known, d, at.k, d);
  TransposeTiles(in.k, z.step, known, d, at.keys);
  TransposeTiles(in.v, z.step, known, d, at.values);
  CopyRows(dy, columns, known, d, at.dy, d);
  for (float* gradient : {at.dq, at.dk, at.dv}) std::fill_n(gradient, z.length * d, 0.0F);
  for (std::int64_t i = 0; i < known; ++i) {
    at.delta[i] = Dot(dy + i * columns, y + i * columns, d);
  }
  for (std::int64_t key = 0; key < known; key += kTile) {
    for (std::int64_t first = z.causal ? key : 0; first < known; first += kTile) {
      BackwardTile(z, at, first, key, known, lse);
    }
  }
  CopyRows(at.dq, d, z.length, d, out.q, z.step);
  CopyRows(at.dk, d, z.length, d, out.k, z.step);
  CopyRows(at.dv, d, z.length, d, out.v, z.step);
}

// run(row, head, known): the first row of the sequence, and how many of its rows there are.
template <typename Run>
void ForEachHead(const Sizes& z, const void* lengths, const Run& run) {
  for (std::int64_t b = 0; b < z.sequences; ++b) {
    const std::int64_t known = LengthOf(static_cast<const std::int32_t*>(lengths), b, z.length);
    for (std::int64_t h = 0; h < z.heads; ++h) run(b * z.length, h, known);
  }
}

}  // namespace

KernelResult MakeAttentionCpu(const KernelRequest& request) {
  const auto& function = static_cast<const Attention&>(request.function);
  const Sizes z = SizesOf(function.options(), request.outputs[0], request.inputs[0]);
  return std::unique_ptr<Kernel>(std::make_unique<CallKernel>(
      request,
      [z](const Call& c) {
        const bool packed = IsPackedAttention(c.inputs.size());
        const ForwardScratch scratch(z, c.scratch);
        ForEachHead(z, HasAttentionLengths(c.inputs.size()) ? c.inputs.back() : nullptr,
                    [&](std::int64_t row, std::int64_t h, std::int64_t known) {
                      ForwardHead(z, Parts<const float>::Of(c.inputs, packed, z, row, h), known,
                                  scratch, c.out<float>(0) + row * z.columns() + h * z.width,
                                  c.out<float>(1) + row * z.heads + h * z.length);
                    });
        return Status::Ok();
      },
      static_cast<std::size_t>(ForwardScratch::Elements(z)) * sizeof(float)));
}

KernelResult MakeAttentionGradientCpu(const KernelRequest& request) {
  const auto& function = static_cast<const AttentionGradient&>(request.function);
  const Sizes z = SizesOf(function.options(), request.inputs[0], request.inputs[3]);
  return std::unique_ptr<Kernel>(std::make_unique<CallKernel>(
      request,
      [z](const Call& c) {
        const std::span<void* const> forward = std::span(c.inputs).subspan(3);
        const bool packed = IsPackedAttention(forward.size());
        const BackwardScratch scratch(z, c.scratch);
        ForEachHead(z, HasAttentionLengths(forward.size()) ? forward.back() : nullptr,
                    [&](std::int64_t row, std::int64_t h, std::int64_t known) {
                      const std::int64_t at = row * z.columns() + h * z.width;
                      BackwardHead(z, c.in<float>(0) + at, c.in<float>(1) + at,
                                   c.in<float>(2) + row * z.heads + h * z.length,
                                   Parts<const float>::Of(forward, packed, z, row, h), known,
                                   scratch, Parts<float>::Of(c.outputs, packed, z, row, h));
                    });
        return Status::Ok();
      },
      static_cast<std::size_t>(BackwardScratch::Elements(z)) * sizeof(float)));
}

}  // namespace gaccd
