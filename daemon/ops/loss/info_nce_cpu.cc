#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "daemon/ops/loss/info_nce.h"

namespace gaccd {
namespace {

constexpr std::int64_t kTile = 64;

std::size_t Size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

}  // namespace

InfoNce::InfoNce(std::int64_t width, bool f64_sums)
    : width_(width),
      multiply_(f64_sums ? &F64TileProduct : &TileProduct),
      queries_(Size(width * kTile)),
      cosines_(Size(kBlock * kTile)),
      product_(Size(kTile * width)),
      gradient_(Size(kTile * width)) {}

std::int64_t InfoNce::Bytes(std::int64_t width) {
  return static_cast<std::int64_t>(Size((2 * width + kBlock) * kTile) * sizeof(float) +
                                   Size(width * kTile) * sizeof(double));
}

// Padding is zero, so that all products are computed in the same way.
void InfoNce::CopyQueries(const ContrastiveRows& batch, const Direction& direction,
                          const Tile& tile) {
  std::ranges::fill(queries_, 0.0F);
  for (std::int64_t q = 0; q < tile.queries; ++q) {
    const float* row = batch.rows.data() + (batch.first + tile.first + q) * 2 * width_;
    for (std::int64_t d = 0; d < width_; ++d) {
      queries_[Size(d * kTile + q)] = row[direction.queries + d];
    }
  }
}

void InfoNce::ComputeCosines(const ContrastiveRows& batch, const Direction& direction,
                             std::int64_t key, std::int64_t keys) {
  const float* rows = batch.rows.data() + key * 2 * width_ + direction.keys;
  multiply_({rows, 2 * width_, 1}, queries_.data(), kTile, cosines_.data(), kTile, keys, kTile,
            width_, /*add=*/false);
}

void InfoNce::ComputeLogSums(const ContrastiveRows& batch, const Direction& direction,
                             const Tile& tile, std::span<double> own_sums) {
  CopyQueries(batch, direction, tile);
  std::array<double, kTile> most;
  most.fill(-std::numeric_limits<double>::infinity());
  std::array<double, kTile> sums{};
  for (std::int64_t key = 0; key < batch.samples(); key += kBlock) {
    const std::int64_t keys = std::min(kBlock, batch.samples() - key);
    ComputeCosines(batch, direction, key, keys);
    for (std::int64_t q = 0; q < tile.queries; ++q) {
      double here = most[Size(q)];
      for (std::int64_t j = 0; j < keys; ++j) {
        here = std::max(here, batch.scale * double{cosines_[Size(j * kTile + q)]});
      }
      double sum = sums[Size(q)] * std::exp(most[Size(q)] - here);
      for (std::int64_t j = 0; j < keys; ++j) {
        sum += std::exp(batch.scale * double{cosines_[Size(j * kTile + q)]} - here);
      }
      sums[Size(q)] = sum;
      most[Size(q)] = here;
    }
  }
  for (std::int64_t q = 0; q < tile.queries; ++q) {
    own_sums[Size((tile.first + q) * 2 + direction.sum)] = most[Size(q)] + std::log(sums[Size(q)]);
  }
}

ContrastiveSums InfoNce::AddGradients(const ContrastiveRows& batch, const Direction& direction,
                                      const Tile& tile, std::span<const double> sums,
                                      std::span<float> gradients) {
  CopyQueries(batch, direction, tile);
  std::ranges::fill(gradient_, 0.0);
  ContrastiveSums found;
  for (std::int64_t key = 0; key < batch.samples(); key += kBlock) {
    const std::int64_t keys = std::min(kBlock, batch.samples() - key);
    ComputeCosines(batch, direction, key, keys);
    for (std::int64_t j = 0; j < keys; ++j) {
      const double of_key = sums[Size((key + j) * 2 + 1 - direction.sum)];
      for (std::int64_t q = 0; q < tile.queries; ++q) {
        const std::int64_t query = batch.first + tile.first + q;
        const double of_query = sums[Size(query * 2 + direction.sum)];
        float& cosine = cosines_[Size(j * kTile + q)];
        const double s = batch.scale * double{cosine};
        double w = std::exp(s - of_query) + std::exp(s - of_key);
        if (query == key + j) {
          w -= 2;
          found.loss += (of_query + of_key) / 2 - s;
        }
        found.log_scale_gradient += w * s;
        cosine = static_cast<float>(w);
      }
    }
    multiply_({cosines_.data(), 1, kTile}, batch.rows.data() + key * 2 * width_ + direction.keys,
              2 * width_, product_.data(), width_, tile.queries, width_, keys, /*add=*/false);
    for (std::int64_t i = 0; i < tile.queries * width_; ++i) {
      gradient_[Size(i)] += double{product_[Size(i)]};
    }
  }
  const double factor = 1 / (2 * static_cast<double>(batch.samples()));
  for (std::int64_t q = 0; q < tile.queries; ++q) {
    float* row = gradients.data() + (tile.first + q) * 2 * width_ + direction.queries;
    for (std::int64_t d = 0; d < width_; ++d) {
      row[d] = static_cast<float>(batch.scale * factor * gradient_[Size(q * width_ + d)]);
    }
  }
  found.log_scale_gradient *= factor;
  return found;
}

void InfoNce::LogSums(const ContrastiveRows& batch, std::span<double> own_sums) {
  for (std::int64_t first = 0; first < batch.own; first += kTile) {
    const Tile tile{first, std::min(kTile, batch.own - first)};
    ComputeLogSums(batch, {.queries = 0, .keys = width_, .sum = 0}, tile, own_sums);
    ComputeLogSums(batch, {.queries = width_, .keys = 0, .sum = 1}, tile, own_sums);
  }
}

ContrastiveSums InfoNce::Gradients(const ContrastiveRows& batch, std::span<const double> sums,
                                   std::span<float> gradients) {
  ContrastiveSums total;
  for (std::int64_t first = 0; first < batch.own; first += kTile) {
    const Tile tile{first, std::min(kTile, batch.own - first)};
    // The rows of a cover every pair once; those of b would count them again.
    const ContrastiveSums found =
        AddGradients(batch, {.queries = 0, .keys = width_, .sum = 0}, tile, sums, gradients);
    total.loss += found.loss;
    total.log_scale_gradient += found.log_scale_gradient;
    AddGradients(batch, {.queries = width_, .keys = 0, .sum = 1}, tile, sums, gradients);
  }
  return total;
}

}  // namespace gaccd
