#include "tests/ranks/op_gradients.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/autograd/executor.h"
#include "daemon/autograd/function.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/host_buffer.h"
#include "daemon/ops/cpu_kernels.h"
#include "tests/ranks/rank_data.h"

namespace gaccd::testing {
namespace {

// Values of x are multiples of the step and small, so sums over ranks are exact in f32.
constexpr float kStep = 1.0F / 64;
// kStep^2 / 6 times the third derivative of the loss is below it; wrong gradients are off by ten
// times as much in some element.
constexpr double kTolerance = 0.01;

// Smooth, different in every element: w_i sin(y_i + i), where w depends on who computes the loss.
double Weight(std::int64_t owner, std::int64_t i) {
  return 1.0 + 0.37 * static_cast<double>(owner) + 0.11 * static_cast<double>(i);
}

class Checker {
 public:
  Checker(Communicator& comm, Loss loss) : comm_(comm), loss_(loss), rank_(comm.rank()) {
    if (loss == Loss::kPerRank) owner_ = rank_;
  }

  Status Open(const Shape& shape, const Record& record) {
    Graph graph;
    GACCD_ASSIGN_OR_RETURN(const std::size_t index, layout_.Add("x", shape));
    const ValueId parameter = graph.AddParameter("x", shape, index);
    GACCD_ASSIGN_OR_RETURN(y_id_, record(graph, parameter));
    const ValueSpec y = graph.value(y_id_).spec;
    const ValueId seed = graph.AddInput("dy", y);
    graph.MarkOutput(y_id_);
    GACCD_RETURN_IF_ERROR(RecordGradients(graph, y_id_, seed));
    GACCD_ASSIGN_OR_RETURN(context_, CpuContext::Create());
    kernels_ = MakeCpuKernels(*context_, {}, &comm_);
    // Not null without rows either.
    x_.resize(static_cast<std::size_t>(std::max<std::int64_t>(1, layout_.size())));
    dx_.assign(x_.size(), -77.0F);  // must be overwritten
    GACCD_ASSIGN_OR_RETURN(
        executor_,
        Executor::Prepare(std::move(graph), {&layout_, x_.data(), dx_.data()}, *kernels_));
    GACCD_ASSIGN_OR_RETURN(
        arena_, HostBuffer::Allocate(static_cast<std::size_t>(executor_->arena_bytes()), "arena"));
    executor_->Attach(arena_.data(), nullptr);
    elements_ = static_cast<std::size_t>(Elements(shape));
    for (std::size_t i = 0; i < elements_; ++i) {
      x_[i] = kStep * static_cast<float>(std::lround(
                          50 * std::sin(1.7 * static_cast<double>(i) + 0.9 * rank_ + 0.3)));
    }
    dy_.resize(static_cast<std::size_t>(Elements(y.shape)));
    executor_->BindInput(seed, dy_.data());
    if (loss_ != Loss::kSharded) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> counts, OfAllRanks(std::ssize(dy_)));
    for (int r = 0; r < rank_; ++r) first_ += counts[static_cast<std::size_t>(r)];
    return Status::Ok();
  }

  Status Run() {
    GACCD_RETURN_IF_ERROR(Objective().status());
    for (std::size_t i = 0; i < dy_.size(); ++i) {
      dy_[i] = static_cast<float>(Weight(owner_, Position(i)) * std::cos(Argument(i)));
    }
    const std::vector<float> seed = dy_;
    GACCD_RETURN_IF_ERROR(Objective().status());
    notes_.Expect(dy_ == seed, "the backward changed its input");
    const std::vector<float> dx = dx_;
    GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> counts,
                           OfAllRanks(static_cast<std::int64_t>(elements_)));
    for (int rank = 0; rank < comm_.size(); ++rank) {
      for (std::size_t i = 0; std::cmp_less(i, counts[static_cast<std::size_t>(rank)]); ++i) {
        GACCD_ASSIGN_OR_RETURN(const double expected, Difference(rank, i));
        if (rank != rank_) continue;
        notes_.Expect(std::abs(static_cast<double>(dx[i]) - expected) <= kTolerance, "dx[", i,
                      "] of rank ", rank, " is ", dx[i], ", finite differences give ", expected);
      }
    }
    return Agree();
  }

 private:
  std::int64_t Position(std::size_t i) const { return first_ + static_cast<std::int64_t>(i); }
  double Argument(std::size_t i) const {
    return static_cast<double>(executor_->Output<float>(y_id_)[i]) +
           static_cast<double>(Position(i));
  }

  // By rank; the same on all.
  Result<std::vector<std::int64_t>> OfAllRanks(std::int64_t mine) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(comm_.size()));
    const std::vector<std::int64_t> ones(all.size(), 1);
    GACCD_RETURN_IF_ERROR(
        comm_.AllGather(View(std::span<const std::int64_t>(&mine, 1)), ones, View(std::span(all))));
    return all;
  }

  // J at the present inputs.
  Result<double> Objective() {
    const std::vector<float> before = x_;
    GACCD_RETURN_IF_ERROR(executor_->Run(true));
    notes_.Expect(x_ == before, "the run changed its input");
    double sum = 0;
    for (std::size_t i = 0; i < dy_.size(); ++i) {
      sum += Weight(owner_, Position(i)) * std::sin(Argument(i));
    }
    if (loss_ == Loss::kReplicated && rank_ != 0) sum = 0;  // counted once
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span(&sum, 1)), View(std::span(&sum, 1))));
    return sum;
  }

  // dJ/dx[i] of `rank` by central differences.
  Result<double> Difference(int rank, std::size_t i) {
    const float keep = rank == rank_ ? x_[i] : 0;
    if (rank == rank_) x_[i] = keep + kStep;
    GACCD_ASSIGN_OR_RETURN(const double above, Objective());
    if (rank == rank_) x_[i] = keep - kStep;
    GACCD_ASSIGN_OR_RETURN(const double below, Objective());
    if (rank == rank_) x_[i] = keep;
    return (above - below) / (2 * static_cast<double>(kStep));
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
  const int rank_;
  std::int64_t owner_ = 0;  // whose weights the loss of this rank has
  std::int64_t first_ = 0;  // position of y[0] in the y of the loss
  std::size_t elements_ = 0;
  FlatLayout layout_;
  std::vector<float> x_, dx_, dy_;
  ValueId y_id_ = -1;
  std::unique_ptr<CpuContext> context_;
  std::unique_ptr<KernelFactory> kernels_;
  std::unique_ptr<Executor> executor_;
  HostBuffer arena_;
  Notes notes_;
};

}  // namespace

Status CheckGradient(Communicator& comm, Loss loss, const Shape& shape, const Record& record) {
  Checker checker(comm, loss);
  GACCD_RETURN_IF_ERROR(checker.Open(shape, record));
  return checker.Run();
}

}  // namespace gaccd::testing
