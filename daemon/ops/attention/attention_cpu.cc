// Attention on the CPU, head by head. Right operands of products are packed first, so that their
// tiles are contiguous whatever the distance between rows of qkv; left ones only for bf16.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "collectives/base/simd.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/attention_tiles_cpu.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/norm/row_reductions.h"
#include "daemon/ops/pointwise/math.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

constexpr std::int64_t kRows = kAttentionTile;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Sizes {
  std::int64_t sequences, heads, length, width;  // width: D
  std::int64_t step;                             // between rows of q, k and v
  bool causal, all_rows;
  float scale;

  [[nodiscard]] std::int64_t columns() const { return heads * width; }
  [[nodiscard]] std::int64_t padded() const { return (length + kRows - 1) / kRows * kRows; }
  // Number of rows computed for a sequence with `known` keys.
  [[nodiscard]] std::int64_t Rows(std::int64_t known) const {
    return all_rows && known > 0 ? length : known;
  }
  // Number of keys, from `key` up to a tile, that row i attends to; the sequence has `known` rows.
  [[nodiscard]] std::int64_t Seen(std::int64_t i, std::int64_t key, std::int64_t known) const {
    const std::int64_t end = causal ? std::min(i + 1, known) : known;
    return std::clamp<std::int64_t>(end - key, 0, kRows);
  }
};

// y: spec of the output, or of a value with its shape.
Sizes MakeSizes(const AttentionOptions& options, const ValueSpec& y, const ValueSpec& q) {
  const std::int64_t width = y.shape[1] / options.heads;
  return {.sequences = y.shape[0] / options.length,
          .heads = options.heads,
          .length = options.length,
          .width = width,
          .step = q.shape[1],
          .causal = options.causal,
          .all_rows = options.all_rows,
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(width)))};
}

std::int64_t ClampedLength(const std::int32_t* lengths, std::int64_t sequence, std::int64_t most) {
  return lengths == nullptr ? most : std::clamp<std::int64_t>(lengths[sequence], 0, most);
}

template <typename T>
GACCD_SIMD_CLONES void CopyRows(const float* from, std::int64_t rows, std::int64_t width, T* to,
                                std::int64_t to_step) {
  for (std::int64_t i = 0; i < rows; ++i) {
    GACCD_INDEPENDENT_ITERATIONS
    for (std::int64_t d = 0; d < width; ++d)
      to[i * to_step + d] = FromFloat<T>(from[i * width + d]);
  }
}

// The `width` columns of a head in an output whose rows are `step` values apart.
struct OutputRows {
  float* data;
  std::int64_t step;
  std::int64_t width;

  [[nodiscard]] float* row(std::int64_t i) const { return data + i * step; }
  void FillWithZeros(std::int64_t first, std::int64_t end) const {
    for (std::int64_t i = first; i < end; ++i) std::fill_n(row(i), width, 0.0F);
  }
};

// Partial sums per row.
constexpr std::int64_t kLanes = 16;

// One row of a tile: s becomes exp(scale s - top) for the first `seen` keys and 0 for the others.
// `top` is the largest value of the row so far; `sums` are the partial sums of its terms. Earlier
// sums, relative to the previous top, must be multiplied by the result.
GACCD_SIMD_CLONES
float SoftmaxRow(float* s, std::int64_t seen, float scale, float& top, float* sums) {
  std::fill(s + seen, s + kRows, -kInfinity);
  const float of_tile = scale * FindLargest(s, kRows);
  const float new_top = of_tile <= top ? top : of_tile;
  for (std::int64_t j = 0; j < kRows; ++j) s[j] = Exp(scale * s[j] - new_top);
  const float factor = Exp(top - new_top);
  for (std::int64_t l = 0; l < kLanes; ++l) {
    sums[l] = sums[l] * factor + (s[l] + s[l + kLanes] + (s[l + 2 * kLanes] + s[l + 3 * kLanes]));
  }
  top = new_top;
  return factor;
}
static_assert(kRows == 4 * kLanes);

GACCD_SIMD_CLONES
void Multiply(float* values, std::int64_t count, float factor) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

// One row of a tile of the backward: s becomes P, dp becomes scale dS.
GACCD_SIMD_CLONES
void GradientRow(float* s, float* dp, std::int64_t seen, float scale, float lse, float delta) {
  std::fill(s + seen, s + kRows, -kInfinity);
  std::fill(dp + seen, dp + kRows, 0.0F);
  for (std::int64_t j = 0; j < kRows; ++j) {
    s[j] = Exp(scale * s[j] - lse);
    dp[j] = s[j] * (dp[j] - delta) * scale;
  }
}

GACCD_SIMD_CLONES
float Dot(const float* a, const float* b, std::int64_t count) {
  return SumValues(count, [a, b](std::int64_t i) { return a[i] * b[i]; });
}

// q, k and v, or their gradients, from one row of a head on.
template <typename T>
struct Parts {
  T *q, *k, *v;

  // all: qkv alone, or three values.
  static Parts Make(std::span<void* const> all, bool packed, const Sizes& z, std::int64_t row,
                    std::int64_t head) {
    const std::int64_t at = row * z.step + head * z.width;
    auto* q = static_cast<T*>(all[0]);
    return {q + at, (packed ? q + z.columns() : static_cast<T*>(all[1])) + at,
            (packed ? q + 2 * z.columns() : static_cast<T*>(all[2])) + at};
  }
};

// Calls run(row, rows, seen) for the rows of a tile: for all at once, or, in the diagonal tile of a
// causal head, for a few at a time. These rows attend to none of the `keys` keys from `seen` on,
// which is a multiple of the columns that a product computes at once.
template <typename Run>
void ForEachRows(bool diagonal, std::int64_t rows, std::int64_t keys, const Run& run) {
  constexpr std::int64_t kAtOnce = 8;
  const std::int64_t step = diagonal ? kAtOnce : rows;
  for (std::int64_t row = 0; row < rows; row += step) {
    const std::int64_t count = std::min(step, rows - row);
    const std::int64_t seen = diagonal ? row + count : keys;
    run(row, count, (seen + kTileColumns - 1) / kTileColumns * kTileColumns);
  }
}

template <typename Tiles>
using Operand = BasicTileOperand<typename Tiles::Word>;

// The rows of an operand from `row` on.
template <typename Word>
BasicTileOperand<Word> From(const BasicTileOperand<Word>& a, std::int64_t row) {
  return {a.data + row * a.row_step, a.row_step, a.k_step};
}

// Memory for one head at a time: `rows` and p are left operands, v is a right one, and `keys` is k
// transposed.
template <typename Tiles>
struct ForwardScratch {
  using Word = typename Tiles::Word;
  ScratchPieces pieces;
  Word *rows, *keys, *v, *p;
  float *s, *tops, *sums;

  ForwardScratch(const Sizes& z, void* memory) : pieces(memory) {
    const std::int64_t words = z.padded() * Tiles::Words(z.width);
    rows = pieces.Allocate<Word>(Tiles::kIsF32 ? 0 : words);
    keys = pieces.Allocate<Word>(words);
    v = pieces.Allocate<Word>(Tiles::Words(z.padded()) * z.width);
    p = pieces.Allocate<Word>(Tiles::kIsF32 ? 0 : kRows * Tiles::Words(kRows));
    s = pieces.Allocate<float>(kRows * kRows);
    tops = pieces.Allocate<float>(kRows);
    sums = pieces.Allocate<float>(kRows * kLanes);
  }
};

// Computes y and lse of the rows [first, first + rows) of a head with `known` keys.
template <typename Tiles>
void ForwardTile(const Sizes& z, const Tiles& tiles, const Operand<Tiles>& q,
                 const ForwardScratch<Tiles>& at, std::int64_t first, std::int64_t rows,
                 std::int64_t known, const OutputRows& y, float* lse) {
  const std::int64_t d = z.width;
  const std::int64_t words = Tiles::Words(d);
  std::fill_n(at.tops, rows, -kInfinity);
  std::fill_n(at.sums, rows * kLanes, 0.0F);
  const std::int64_t keys = z.causal ? std::min(first + rows, known) : known;
  for (std::int64_t key = 0; key < keys; key += kRows) {
    const bool diagonal = z.causal && key == first;
    const std::int64_t tile_keys = std::min(kRows, known - key);
    ForEachRows(diagonal, rows, tile_keys,
                [&](std::int64_t row, std::int64_t count, std::int64_t seen) {
                  tiles.Product(From(q, first + row), at.keys + key * words, kRows,
                                at.s + row * kRows, kRows, count, seen, words, false);
                });
    for (std::int64_t i = 0; i < rows; ++i) {
      const float factor = SoftmaxRow(at.s + i * kRows, z.Seen(first + i, key, known), z.scale,
                                      at.tops[i], at.sums + i * kLanes);
      if (key > 0 && factor != 1.0F) Multiply(y.row(first + i), d, factor);
    }
    const auto p = tiles.Rows({at.s, kRows, rows, kRows}, at.p);
    ForEachRows(diagonal, rows, tile_keys,
                [&](std::int64_t row, std::int64_t count, std::int64_t seen) {
                  tiles.Product(From(p, row), at.v + Tiles::Words(key) * d, d, y.row(first + row),
                                y.step, count, d, Tiles::Words(std::min(seen, tile_keys)), key > 0);
                });
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* sums = at.sums + i * kLanes;
    const float sum = SumValues(kLanes, [sums](std::int64_t l) { return sums[l]; });
    Multiply(y.row(first + i), d, 1.0F / sum);
    lse[first + i] = at.tops[i] + std::log(sum);
  }
}

template <typename Tiles>
void ForwardHead(const Sizes& z, const Tiles& tiles, const Parts<const float>& in,
                 std::int64_t known, const ForwardScratch<Tiles>& at, const OutputRows& y,
                 float* lse) {
  const std::int64_t d = z.width;
  const std::int64_t rows = z.Rows(known);
  TransposeAttentionTiles(tiles.Rows({in.k, z.step, known, d}, at.rows), known, Tiles::Words(d),
                          at.keys);
  const auto q = tiles.Rows({in.q, z.step, rows, d}, at.rows);
  tiles.PackColumns({in.v, z.step, known, d}, at.v);
  for (std::int64_t first = 0; first < rows; first += kRows) {
    ForwardTile(z, tiles, q, at, first, std::min(kRows, rows - first), known, y, lse);
  }
  y.FillWithZeros(rows, z.length);
  std::fill_n(lse + rows, z.length - rows, 0.0F);
}

// *_rows are left operands, *_columns operands of products over rows; keys and values are k and v
// transposed. The gradients of a head are summed here if they are rounded at the end.
template <typename Tiles>
struct BackwardScratch {
  using Word = typename Tiles::Word;
  ScratchPieces pieces;
  Word *q_rows, *q_columns, *k_columns, *dy_rows, *dy_columns, *keys, *values, *p, *ds;
  float *dq, *dk, *dv, *s, *dp, *delta;

  BackwardScratch(const Sizes& z, bool sums, void* memory) : pieces(memory) {
    const std::int64_t rows = z.padded() * Tiles::Words(z.width);
    const std::int64_t columns = Tiles::Words(z.padded()) * z.width;
    for (Word** left : {&q_rows, &dy_rows}) *left = pieces.Allocate<Word>(Tiles::kIsF32 ? 0 : rows);
    for (Word** right : {&keys, &values}) *right = pieces.Allocate<Word>(rows);
    for (Word** right : {&q_columns, &k_columns, &dy_columns}) {
      *right = pieces.Allocate<Word>(columns);
    }
    for (Word** tile : {&p, &ds}) {
      *tile = pieces.Allocate<Word>(Tiles::kIsF32 ? 0 : kRows * Tiles::Words(kRows));
    }
    for (float** gradient : {&dq, &dk, &dv})
      *gradient = pieces.Allocate<float>(sums ? z.padded() * z.width : 0);
    for (float** tile : {&s, &dp}) *tile = pieces.Allocate<float>(kRows * kRows);
    delta = pieces.Allocate<float>(z.padded());
  }
};

struct OutputParts {
  OutputRows q, k, v;
};

// A head's operands that are read where they are if they are f32.
template <typename Tiles>
struct LeftOperands {
  Operand<Tiles> q, dy;
};

// Adds the contributions of the rows [first, first + rows) and the keys from `key` on to each
// other's gradients, which the first tile of a row or key overwrites.
template <typename Tiles>
void BackwardTile(const Sizes& z, const Tiles& tiles, const LeftOperands<Tiles>& left,
                  const BackwardScratch<Tiles>& at, std::int64_t first, std::int64_t key,
                  std::int64_t known, const float* lse, const OutputParts& out) {
  const std::int64_t d = z.width;
  const std::int64_t words = Tiles::Words(d);
  const std::int64_t rows = std::min(kRows, z.Rows(known) - first);
  const std::int64_t keys = std::min(kRows, known - key);
  const bool diagonal = z.causal && key == first;
  const bool add_to_keys = first > (z.causal ? key : 0);
  ForEachRows(diagonal, rows, keys, [&](std::int64_t row, std::int64_t count, std::int64_t seen) {
    tiles.Product(From(left.q, first + row), at.keys + key * words, kRows, at.s + row * kRows,
                  kRows, count, seen, words, false);
    tiles.Product(From(left.dy, first + row), at.values + key * words, kRows, at.dp + row * kRows,
                  kRows, count, seen, words, false);
  });
  for (std::int64_t i = 0; i < rows; ++i) {
    GradientRow(at.s + i * kRows, at.dp + i * kRows, z.Seen(first + i, key, known), z.scale,
                lse[first + i], at.delta[first + i]);
  }
  const auto* p = tiles.TileColumns({at.s, kRows, rows, kRows}, at.p);
  const auto* ds = tiles.TileColumns({at.dp, kRows, rows, kRows}, at.ds);
  const std::int64_t columns = Tiles::Words(first) * d;
  // On the diagonal, a key is used by the rows from it on: rows and keys are swapped.
  ForEachRows(diagonal, keys, keys, [&](std::int64_t j, std::int64_t count, std::int64_t) {
    const std::int64_t skipped = diagonal ? Tiles::Words(j) : 0;
    const std::int64_t from = skipped * kRows + j;
    const std::int64_t summed = Tiles::Words(rows) - skipped;
    tiles.Product({p + from, 1, kRows}, at.dy_columns + columns + skipped * d, d,
                  out.v.row(key + j), out.v.step, count, d, summed, add_to_keys);
    tiles.Product({ds + from, 1, kRows}, at.q_columns + columns + skipped * d, d,
                  out.k.row(key + j), out.k.step, count, d, summed, add_to_keys);
  });
  const auto ds_rows = tiles.Rows({at.dp, kRows, rows, kRows}, at.ds);
  ForEachRows(diagonal, rows, keys, [&](std::int64_t row, std::int64_t count, std::int64_t seen) {
    tiles.Product(From(ds_rows, row), at.k_columns + Tiles::Words(key) * d, d,
                  out.q.row(first + row), out.q.step, count, d, Tiles::Words(std::min(seen, keys)),
                  key > 0);
  });
}

template <typename Tiles, typename T>
void BackwardHead(const Sizes& z, const Tiles& tiles, const float* dy, const float* y,
                  const float* lse, const Parts<const float>& in, std::int64_t known,
                  const BackwardScratch<Tiles>& at, const Parts<T>& out) {
  const std::int64_t d = z.width;
  const std::int64_t columns = z.columns();
  const std::int64_t rows = z.Rows(known);
  for (auto [part, transposed] : {std::pair(in.k, at.keys), std::pair(in.v, at.values)}) {
    TransposeAttentionTiles(tiles.Rows({part, z.step, known, d}, at.q_rows), known, Tiles::Words(d),
                            transposed);
  }
  const LeftOperands<Tiles> left{tiles.Rows({in.q, z.step, rows, d}, at.q_rows),
                                 tiles.Rows({dy, columns, rows, d}, at.dy_rows)};
  tiles.PackColumns({in.q, z.step, rows, d}, at.q_columns);
  tiles.PackColumns({in.k, z.step, known, d}, at.k_columns);
  tiles.PackColumns({dy, columns, rows, d}, at.dy_columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    at.delta[i] = Dot(dy + i * columns, y + i * columns, d);
  }
  const auto sums = [&](auto* output, float* scratch) {
    if constexpr (std::is_same_v<T, float>) return OutputRows{output, z.step, d};
    return OutputRows{scratch, d, d};
  };
  const OutputParts to{sums(out.q, at.dq), sums(out.k, at.dk), sums(out.v, at.dv)};
  for (std::int64_t key = 0; key < known; key += kRows) {
    for (std::int64_t first = z.causal ? key : 0; first < rows; first += kRows) {
      BackwardTile(z, tiles, left, at, first, key, known, lse, to);
    }
  }
  to.q.FillWithZeros(rows, z.length);
  to.k.FillWithZeros(known, z.length);
  to.v.FillWithZeros(known, z.length);
  if constexpr (!std::is_same_v<T, float>) {
    CopyRows(at.dq, z.length, d, out.q, z.step);
    CopyRows(at.dk, z.length, d, out.k, z.step);
    CopyRows(at.dv, z.length, d, out.v, z.step);
  }
}

// Calls run(row, head, known): the first row of the sequence, and its number of rows.
template <typename Run>
void ForEachHead(const Sizes& z, const void* lengths, const Run& run) {
  for (std::int64_t b = 0; b < z.sequences; ++b) {
    const std::int64_t known =
        ClampedLength(static_cast<const std::int32_t*>(lengths), b, z.length);
    for (std::int64_t h = 0; h < z.heads; ++h) run(b * z.length, h, known);
  }
}

template <typename Tiles>
KernelResult MakeForward(const KernelRequest& request, const Sizes& z, const Tiles& tiles) {
  return MakeCall(
      request,
      [z, tiles](const Call& c) {
        const bool packed = IsPackedAttention(c.inputs.size());
        const ForwardScratch<Tiles> scratch(z, c.scratch);
        ForEachHead(z, HasAttentionLengths(c.inputs.size()) ? c.inputs.back() : nullptr,
                    [&](std::int64_t row, std::int64_t h, std::int64_t known) {
                      ForwardHead(
                          z, tiles, Parts<const float>::Make(c.inputs, packed, z, row, h), known,
                          scratch,
                          {c.out<float>(0) + row * z.columns() + h * z.width, z.columns(), z.width},
                          c.out<float>(1) + row * z.heads + h * z.length);
                    });
        return Status::Ok();
      },
      ForwardScratch<Tiles>(z, nullptr).pieces.bytes());
}

// T: type of the gradients.
template <typename T, typename Tiles>
KernelResult MakeBackward(const KernelRequest& request, const Sizes& z, const Tiles& tiles) {
  return MakeCall(
      request,
      [z, tiles](const Call& c) {
        const std::span<void* const> forward = std::span(c.inputs).subspan(3);
        const bool packed = IsPackedAttention(forward.size());
        const BackwardScratch<Tiles> scratch(z, !std::is_same_v<T, float>, c.scratch);
        ForEachHead(z, HasAttentionLengths(forward.size()) ? forward.back() : nullptr,
                    [&](std::int64_t row, std::int64_t h, std::int64_t known) {
                      const std::int64_t at = row * z.columns() + h * z.width;
                      BackwardHead(z, tiles, c.in<float>(0) + at, c.in<float>(1) + at,
                                   c.in<float>(2) + row * z.heads + h * z.length,
                                   Parts<const float>::Make(forward, packed, z, row, h), known,
                                   scratch, Parts<T>::Make(c.outputs, packed, z, row, h));
                    });
        return Status::Ok();
      },
      BackwardScratch<Tiles>(z, !std::is_same_v<T, float>, nullptr).pieces.bytes());
}

Bf16AttentionTiles Bf16Tiles() { return {SelectBf16TileMath(DetectCpuBf16())}; }

}  // namespace

KernelResult MakeAttentionCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  const auto& options = static_cast<const Attention&>(request.function).options();
  const Sizes z = MakeSizes(options, request.outputs[0], request.inputs[0]);
  if (options.round_to_bf16) return MakeForward(request, z, Bf16Tiles());
  return environment.context.f64_sums() ? MakeForward(request, z, F64SumsAttentionTiles())
                                        : MakeForward(request, z, F32AttentionTiles());
}

KernelResult MakeAttentionGradientCpu(const KernelRequest& request,
                                      const CpuEnvironment& environment) {
  const auto& options = static_cast<const AttentionGradient&>(request.function).options();
  const Sizes z = MakeSizes(options, request.inputs[0], request.inputs[3]);
  const auto make = [&](const auto& tiles) {
    return request.outputs[0].dtype == DType::kBF16 ? MakeBackward<Bf16>(request, z, tiles)
                                                    : MakeBackward<float>(request, z, tiles);
  };
  if (options.round_to_bf16) return make(Bf16Tiles());
  return environment.context.f64_sums() ? make(F64SumsAttentionTiles()) : make(F32AttentionTiles());
}

}  // namespace gaccd
