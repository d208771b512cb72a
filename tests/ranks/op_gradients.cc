#include "tests/ranks/op_gradients.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "collectives/base/strings.h"
#include "tests/ranks/rank_data.h"

namespace gaccd::testing {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-8;

std::size_t Index(std::int64_t i) { return static_cast<std::size_t>(i); }

// Smooth, different in every element: w_i sin(y_i + i), where w depends on who computes the loss.
double Weight(std::int64_t owner, std::int64_t i) {
  return 1.0 + 0.37 * static_cast<double>(owner) + 0.11 * static_cast<double>(i);
}

class Checker {
 public:
  Checker(Communicator& comm, Loss loss, const OpUnderTest& op)
      : comm_(comm), loss_(loss), op_(op), rank_(comm.rank()) {
    x_.resize(Index(op.x_elements[Index(rank_)]));
    y_.resize(Index(op.y_elements[Index(rank_)]));
    for (std::size_t i = 0; i < x_.size(); ++i) {
      x_[i] = std::sin(1.7 * static_cast<double>(i) + 0.9 * rank_ + 0.3);
    }
    if (loss == Loss::kPerRank) owner_ = rank_;
    if (loss == Loss::kSharded) {
      const auto& y = op.y_elements;
      first_ = std::accumulate(y.begin(), y.begin() + rank_, std::int64_t{0});
    }
  }

  Status Run() {
    std::vector<double> dx;
    GACCD_RETURN_IF_ERROR(Backward(dx));
    for (int rank = 0; rank < comm_.size(); ++rank) {
      for (std::size_t i = 0; i < Index(op_.x_elements[Index(rank)]); ++i) {
        GACCD_ASSIGN_OR_RETURN(const double expected, Difference(rank, i));
        if (rank != rank_) continue;
        notes_.Expect(std::abs(dx[i] - expected) <= kTolerance, "dx[", i, "] of rank ", rank,
                      " is ", dx[i], ", finite differences give ", expected);
      }
    }
    return Agree();
  }

 private:
  // J at the present inputs.
  Result<double> Objective() {
    const std::vector<double> before = x_;
    GACCD_RETURN_IF_ERROR(op_.forward(View(std::span<const double>(x_)), View(std::span(y_))));
    notes_.Expect(x_ == before, "Forward changed its input");
    double sum = 0;
    for (std::size_t i = 0; i < y_.size(); ++i) {
      const std::int64_t position = first_ + static_cast<std::int64_t>(i);
      sum += Weight(owner_, position) * std::sin(y_[i] + static_cast<double>(position));
    }
    if (loss_ == Loss::kReplicated && rank_ != 0) sum = 0;  // counted once
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span(&sum, 1)), View(std::span(&sum, 1))));
    return sum;
  }

  Status Backward(std::vector<double>& dx) {
    GACCD_RETURN_IF_ERROR(Objective().status());
    std::vector<double> dy(y_.size());
    for (std::size_t i = 0; i < y_.size(); ++i) {
      const std::int64_t position = first_ + static_cast<std::int64_t>(i);
      dy[i] = Weight(owner_, position) * std::cos(y_[i] + static_cast<double>(position));
    }
    const std::vector<double> before = dy;
    dx.assign(x_.size(), -77.0);  // must be overwritten
    GACCD_RETURN_IF_ERROR(op_.backward(View(std::span<const double>(dy)), View(std::span(dx))));
    notes_.Expect(dy == before, "Backward changed its input");
    return Status::Ok();
  }

  // dJ/dx[i] of `rank` by central differences.
  Result<double> Difference(int rank, std::size_t i) {
    const double keep = rank == rank_ ? x_[i] : 0;
    if (rank == rank_) x_[i] = keep + kStep;
    GACCD_ASSIGN_OR_RETURN(const double above, Objective());
    if (rank == rank_) x_[i] = keep - kStep;
    GACCD_ASSIGN_OR_RETURN(const double below, Objective());
    if (rank == rank_) x_[i] = keep;
    return (above - below) / (2 * kStep);
  }

  // An error on one rank is an error on all.
  Status Agree() {
    std::int32_t bad = notes_.status().ok() ? 0 : 1;
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span(&bad, 1)), View(std::span(&bad, 1))));
    if (bad == 0 || !notes_.status().ok()) return notes_.status();
    return {ErrorKind::kInternal, StrCat("the gradient is wrong on ", bad, " other ranks")};
  }

  Communicator& comm_;
  const Loss loss_;
  const OpUnderTest& op_;
  const int rank_;
  std::int64_t owner_ = 0;  // whose weights the loss of this rank has
  std::int64_t first_ = 0;  // position of y_[0] in the y of the loss
  std::vector<double> x_;
  std::vector<double> y_;
  Notes notes_;
};

}  // namespace

Status CheckGradient(Communicator& comm, Loss loss, const OpUnderTest& op) {
  return Checker(comm, loss, op).Run();
}

}  // namespace gaccd::testing
