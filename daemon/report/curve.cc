#include "daemon/report/curve.h"

#include <algorithm>
#include <utility>

namespace gaccd {

void Curve::Join(const Stretch& more, Stretch* stretch) {
  if (more.low.value < stretch->low.value) stretch->low = more.low;
  if (more.high.value > stretch->high.value) stretch->high = more.high;
  stretch->last = more.last;
}

void Curve::Add(std::int64_t step, double value) {
  if (std::exchange(begins_, false)) pieces_.emplace_back();
  std::vector<Stretch>& piece = pieces_.back();
  const CurvePoint point{step, value};
  const Stretch stretch{step / width_, point, point, point, point};
  if (!piece.empty() && piece.back().index == stretch.index && width_ > 1) {
    Join(stretch, &piece.back());
    return;
  }
  piece.push_back(stretch);
  ++count_;
  Shorten();
}

void Curve::Limit(std::size_t most_stretches) {
  most_ = most_stretches;
  Shorten();
}

void Curve::Shorten() {
  // An attempt has a stretch at least.
  while (count_ > most_ + pieces_.size()) DoubleWidth();
}

void Curve::DoubleWidth() {
  width_ *= 2;
  count_ = 0;
  for (std::vector<Stretch>& piece : pieces_) {
    std::vector<Stretch> joined;
    for (Stretch& stretch : piece) {
      stretch.index /= 2;
      if (!joined.empty() && joined.back().index == stretch.index) {
        Join(stretch, &joined.back());
      } else {
        joined.push_back(stretch);
      }
    }
    piece = std::move(joined);
    count_ += piece.size();
  }
}

std::vector<CurvePiece> Curve::Pieces() const {
  std::vector<CurvePiece> pieces;
  for (const std::vector<Stretch>& piece : pieces_) {
    CurvePiece& points = pieces.emplace_back();
    for (const Stretch& stretch : piece) {
      const bool low_first = stretch.low.step <= stretch.high.step;
      for (const CurvePoint& point : {stretch.first, low_first ? stretch.low : stretch.high,
                                      low_first ? stretch.high : stretch.low, stretch.last}) {
        if (points.empty() || points.back() != point) points.push_back(point);
      }
    }
  }
  return pieces;
}

}  // namespace gaccd
