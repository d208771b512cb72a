// A figure over updates, in memory that does not grow with the run.
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

// The points of one attempt, in their order.
using CurvePiece = std::vector<CurvePoint>;

// Keeps every point while there are few. Later, of each bin of updates: the first, the last,
// the smallest and the largest one, so that no extreme is lost and every point is one of the run.
// Bins are equally long, and twice as long whenever there are too many. Not thread-safe.
class Curve {
 public:
  static constexpr std::size_t kMaxBins = 360;

  Curve() = default;
  explicit Curve(std::size_t max_bins) : most_(max_bins) {}

  // The following points belong to another attempt, whose updates may be those of the one before.
  void BeginPiece() { begins_ = true; }
  // Updates after this one are lost: a later attempt does them again, or others.
  void GoBackTo(std::int64_t step);
  // REQUIRES: `step` is not negative, `value` is finite.
  void Add(std::int64_t step, double value);

  // Fewer bins from here on.
  void Limit(std::size_t max_bins);

  [[nodiscard]] bool empty() const { return pieces_.empty(); }
  // Updates of a bin; 1: nothing is left out.
  [[nodiscard]] std::int64_t width() const { return width_; }
  [[nodiscard]] std::vector<CurvePiece> Pieces() const;
  // Of each of the pieces: its points from this update on are lost, or there again in a later one.
  [[nodiscard]] const std::vector<std::int64_t>& lost_from() const { return lost_from_; }
  // The pieces without what is lost; those that have nothing else are left out.
  [[nodiscard]] std::vector<CurvePiece> PiecesThatCount() const;

 private:
  struct Bin {
    std::int64_t index = 0;
    CurvePoint first, low, high, last;
  };

  static void Join(const Bin& more, Bin* bin);
  void Shorten();
  void DoubleWidth();

  std::size_t most_ = kMaxBins;
  std::int64_t width_ = 1;
  std::size_t count_ = 0;  // of bins in all pieces
  bool begins_ = true;
  std::vector<std::vector<Bin>> pieces_;
  std::vector<std::int64_t> lost_from_;  // of each piece
};

// Sums over bins of updates, of all attempts together. `Sum` has operator+=.
template <typename Sum>
class BinSums {
 public:
  explicit BinSums(std::size_t max_bins) : most_(max_bins) {}

  void Add(std::int64_t step, const Sum& sum) {
    sums_[step / width_] += sum;
    while (sums_.size() > most_) DoubleWidth();
  }

  [[nodiscard]] std::int64_t width() const { return width_; }
  // By the number of the bin: it begins at update number * width().
  [[nodiscard]] const std::map<std::int64_t, Sum>& sums() const { return sums_; }

 private:
  void DoubleWidth() {
    width_ *= 2;
    std::map<std::int64_t, Sum> joined;
    for (const auto& [index, sum] : sums_) joined[index / 2] += sum;
    sums_ = std::move(joined);
  }

  std::size_t most_;
  std::int64_t width_ = 1;
  std::map<std::int64_t, Sum> sums_;
};

}  // namespace gaccd
