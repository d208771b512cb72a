// A figure over updates in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace gaccd {

struct CurvePoint {
  std::int64_t step = 0;
  double value = 0;

  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};

// The points of one attempt, in order.
using CurvePiece = std::vector<CurvePoint>;

// Keeps every point while there are few, later the first, last, smallest and largest of each bin of
// updates, so that extremes are kept. Bins have equal widths, which double when there are too many.
// Not thread-safe.
class Curve {
 public:
  static constexpr std::size_t kMaxBins = 360;

  Curve() = default;
  explicit Curve(std::size_t max_bins) : max_bins_(max_bins) {}

  // The following points belong to another attempt, which may repeat updates of the previous one.
  void BeginPiece() { begins_ = true; }
  // Marks the updates after this one as lost, because a later attempt resumed there.
  void RewindTo(std::int64_t step);
  // REQUIRES: `step` is not negative, `value` is finite.
  void Add(std::int64_t step, double value);

  // Reduces the maximum number of bins.
  void Limit(std::size_t max_bins);

  [[nodiscard]] bool empty() const { return pieces_.empty(); }
  // Updates per bin; 1: all points are kept.
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::vector<CurvePiece> Pieces() const;
  // For each piece the first update that is lost or repeated in a later piece.
  [[nodiscard]] const std::vector<std::int64_t>& lost_from() const { return lost_from_; }
  // The pieces without lost points, and without empty pieces.
  [[nodiscard]] std::vector<CurvePiece> KeptPieces() const;

 private:
  struct Bin {
    std::int64_t index = 0;
    CurvePoint first, low, high, last;
  };

  static void Join(const Bin& more, Bin* bin);
  void Shorten();
  void DoubleWidth();

  std::size_t max_bins_ = kMaxBins;
  std::int64_t width_ = 1;
  std::size_t count_ = 0;  // number of bins in all pieces
  bool begins_ = true;
  std::vector<std::vector<Bin>> pieces_;
  std::vector<std::int64_t> lost_from_;  // by piece
};

// Sums over bins of updates, for all attempts together. `Sum` has operator+=.
template <typename Sum>
class BinSums {
 public:
  explicit BinSums(std::size_t max_bins) : max_bins_(max_bins) {}

  void Add(std::int64_t step, const Sum& sum) {
    sums_[step / width_] += sum;
    while (sums_.size() > max_bins_) DoubleWidth();
  }

  [[nodiscard]] std::int64_t width() const { return width_; }
  // By index of the bin, which begins at update index * width().
  [[nodiscard]] const std::map<std::int64_t, Sum>& sums() const { return sums_; }

 private:
  void DoubleWidth() {
    width_ *= 2;
    std::map<std::int64_t, Sum> joined;
    for (const auto& [index, sum] : sums_) joined[index / 2] += sum;
    sums_ = std::move(joined);
  }

  std::size_t max_bins_;
  std::int64_t width_ = 1;
  std::map<std::int64_t, Sum> sums_;
};

}  // namespace gaccd
