// The symmetric contrastive loss (InfoNCE, as in CLIP) of one effective batch distributed over the
// ranks. For B pairs of rows (a_i, b_i) of length 1 and a scale t:
//
//   s_ij = t a_i.b_j     A_i = log sum_j exp s_ij     B_j = log sum_i exp s_ij
//   loss = 1/B sum_i [ (A_i + B_i)/2 - s_ii ]
//
//   w_ij = exp(s_ij - A_i) + exp(s_ij - B_j) - 2 [i = j]          (= 2B d loss / d s_ij)
//   d loss / d a_i = t/(2B) sum_j w_ij b_j      d loss / d b_j = t/(2B) sum_i w_ij a_i
//   d loss / d log t = 1/(2B) sum_ij w_ij s_ij
//
// With all rows and all log sums, a rank can compute the gradients of its own rows without further
// messages; loss and d log t of a rank are sums over its own i. Products are f32, sums over B f64.
// Every value is computed in the same order of the B samples, however they are distributed. Memory
// besides the rows: a tile of kBlock samples.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/ops/product/tile_product_cpu.h"

namespace gaccd {

// The rows of the whole effective batch in sample order, and the range of own samples.
struct ContrastiveRows {
  std::span<const float> rows;  // [samples, 2 width]: a_i, then b_i
  std::int64_t width = 0;
  std::int64_t first = 0;  // own samples are [first, first + own)
  std::int64_t own = 0;
  double scale = 1;  // t

  [[nodiscard]] std::int64_t samples() const { return std::ssize(rows) / (2 * width); }
};

struct ContrastiveSums {
  double loss = 0;                // sum over own samples, not divided by B
  double log_scale_gradient = 0;  // this rank's share of d loss / d log t
};

// Used by one thread; memory is allocated once.
class InfoNce {
 public:
  static constexpr std::int64_t kBlock = 1024;

  // f64_sums: products sum in f64.
  explicit InfoNce(std::int64_t width, bool f64_sums = false);

  // own_sums [own, 2]: A_i and B_i of the own samples.
  void LogSums(const ContrastiveRows& batch, std::span<double> own_sums);
  // sums [samples, 2]: of all samples. gradients [own, 2 width]: d loss / d a_i, then d loss / d
  // b_i.
  ContrastiveSums Gradients(const ContrastiveRows& batch, std::span<const double> sums,
                            std::span<float> gradients);

  // The memory of an object.
  [[nodiscard]] static std::int64_t Bytes(std::int64_t width);

 private:
  // Own rows of one side with all rows of the other.
  struct Direction {
    std::int64_t queries = 0;  // offset of the side of the queries in a row: 0 or width
    std::int64_t keys = 0;
    std::int64_t sum = 0;  // index of the log sum over the keys
  };
  struct Tile {
    std::int64_t first = 0;    // the first query, counted from the first own sample
    std::int64_t queries = 0;  // the rest of the tile is padding
  };
  void CopyQueries(const ContrastiveRows& batch, const Direction& direction, const Tile& tile);
  void ComputeCosines(const ContrastiveRows& batch, const Direction& direction, std::int64_t key,
                      std::int64_t keys);
  void ComputeLogSums(const ContrastiveRows& batch, const Direction& direction, const Tile& tile,
                      std::span<double> own_sums);
  ContrastiveSums AddGradients(const ContrastiveRows& batch, const Direction& direction,
                               const Tile& tile, std::span<const double> sums,
                               std::span<float> gradients);

  std::int64_t width_;
  decltype(&TileProduct) multiply_;
  std::vector<float> queries_;    // [width, kTile]: transposed
  std::vector<float> cosines_;    // [kBlock, kTile], then w_ij
  std::vector<float> product_;    // [kTile, width]
  std::vector<double> gradient_;  // [kTile, width]
};

}  // namespace gaccd
