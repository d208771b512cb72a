#include "daemon/inspect/report/curve.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gaccd {

void Curve::Join(const Bin& more, Bin* bin) {
  if (more.low.value < bin->low.value) bin->low = more.low;
  if (more.high.value > bin->high.value) bin->high = more.high;
  bin->last = more.last;
}

void Curve::Add(std::int64_t step, double value) {
  if (std::exchange(begins_, false)) {
    RewindTo(step - 1);
    pieces_.emplace_back();
    lost_from_.push_back(std::numeric_limits<std::int64_t>::max());
  }
  std::vector<Bin>& piece = pieces_.back();
  const CurvePoint point{step, value};
  const Bin bin{step / width_, point, point, point, point};
  if (!piece.empty() && piece.back().index == bin.index && width_ > 1) {
    Join(bin, &piece.back());
    return;
  }
  piece.push_back(bin);
  ++count_;
  Shorten();
}

void Curve::RewindTo(std::int64_t step) {
  for (std::int64_t& from : lost_from_) from = std::min(from, step + 1);
}

void Curve::Limit(std::size_t max_bins) {
  max_bins_ = max_bins;
  Shorten();
}

void Curve::Shorten() {
  // An attempt has at least one bin.
  while (count_ > max_bins_ + pieces_.size()) DoubleWidth();
}

void Curve::DoubleWidth() {
  width_ *= 2;
  count_ = 0;
  for (std::vector<Bin>& piece : pieces_) {
    std::vector<Bin> joined;
    for (Bin& bin : piece) {
      bin.index /= 2;
      if (!joined.empty() && joined.back().index == bin.index) {
        Join(bin, &joined.back());
      } else {
        joined.push_back(bin);
      }
    }
    piece = std::move(joined);
    count_ += piece.size();
  }
}

std::vector<CurvePiece> Curve::Pieces() const {
  std::vector<CurvePiece> pieces;
  for (const std::vector<Bin>& piece : pieces_) {
    CurvePiece& points = pieces.emplace_back();
    for (const Bin& bin : piece) {
      const bool low_first = bin.low.step <= bin.high.step;
      for (const CurvePoint& point :
           {bin.first, low_first ? bin.low : bin.high, low_first ? bin.high : bin.low, bin.last}) {
        if (points.empty() || points.back() != point) points.push_back(point);
      }
    }
  }
  return pieces;
}

std::vector<CurvePiece> Curve::KeptPieces() const {
  std::vector<CurvePiece> pieces = Pieces();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    std::erase_if(pieces[i], [&](const CurvePoint& point) { return point.step >= lost_from_[i]; });
  }
  std::erase_if(pieces, [](const CurvePiece& piece) { return piece.empty(); });
  return pieces;
}

}  // namespace gaccd
