#include "tests/ranks/op_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/autograd/executor.h"
#include "daemon/autograd/function.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/ops/cpu_kernels.h"
#include "tests/ranks/rank_data.h"

namespace gaccd::tests {
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

class CpuDevice final : public GradientDevice {
 public:
  Result<KernelFactory*> Kernels(Communicator& comm) override {
    GACCD_ASSIGN_OR_RETURN(context_, CpuContext::Create());
    kernels_ = MakeCpuKernels(*context_, {}, &comm);
    return kernels_.get();
  }
  Result<void*> Allocate(std::size_t bytes) override {
    GACCD_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Allocate(bytes, "values"));
    buffers_.push_back(std::move(buffer));
    return static_cast<void*>(buffers_.back().data());
  }
  Status Copy(void* to, const void* from, std::size_t bytes, bool /*to_device*/) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return Status::Ok();
  }

 private:
  std::list<HostBuffer> buffers_;
  std::unique_ptr<CpuContext> context_;
  std::unique_ptr<KernelFactory> kernels_;
};

// Floats of the host with a copy on the device.
struct Mirror {
  std::vector<float> host;
  void* device = nullptr;
};

class Checker {
 public:
  Checker(Communicator& comm, GradientDevice& device, Loss loss)
      : comm_(comm), device_(device), loss_(loss), rank_(comm.rank()) {
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
    GACCD_ASSIGN_OR_RETURN(KernelFactory* const kernels, device_.Kernels(comm_));
    // Not null without rows either.
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(1, layout_.size()));
    GACCD_RETURN_IF_ERROR(MakeMirror(size, &x_));
    GACCD_RETURN_IF_ERROR(MakeMirror(size, &dx_));
    dx_.host.assign(size, -77.0F);  // must be overwritten
    GACCD_RETURN_IF_ERROR(Copy(dx_, /*to_device=*/true));
    GACCD_ASSIGN_OR_RETURN(executor_, Executor::Prepare(std::move(graph),
                                                        {&layout_, static_cast<float*>(x_.device),
                                                         static_cast<float*>(dx_.device)},
                                                        *kernels));
    GACCD_ASSIGN_OR_RETURN(void* const arena,
                           device_.Allocate(static_cast<std::size_t>(std::max<std::int64_t>(
                               MemoryPlan::kAlignment, executor_->arena_bytes()))));
    executor_->Attach(arena, nullptr);
    elements_ = static_cast<std::size_t>(Elements(shape));
    for (std::size_t i = 0; i < elements_; ++i) {
      x_.host[i] = kStep * static_cast<float>(std::lround(
                               50 * std::sin(1.7 * static_cast<double>(i) + 0.9 * rank_ + 0.3)));
    }
    GACCD_RETURN_IF_ERROR(MakeMirror(static_cast<std::size_t>(Elements(y.shape)), &dy_));
    y_ = dy_.host;
    executor_->BindInput(seed, dy_.device);
    if (loss_ != Loss::kSharded) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> counts, GatherFromRanks(std::ssize(y_)));
    for (int r = 0; r < rank_; ++r) first_ += counts[static_cast<std::size_t>(r)];
    return Status::Ok();
  }

  Status Run() {
    GACCD_RETURN_IF_ERROR(Objective().status());
    for (std::size_t i = 0; i < y_.size(); ++i) {
      dy_.host[i] = static_cast<float>(Weight(owner_, Position(i)) * std::cos(Argument(i)));
    }
    const std::vector<float> seed = dy_.host;
    GACCD_RETURN_IF_ERROR(Objective().status());
    GACCD_RETURN_IF_ERROR(Copy(dy_, /*to_device=*/false));
    notes_.Expect(dy_.host == seed, "the backward changed its input");
    GACCD_RETURN_IF_ERROR(Copy(dx_, /*to_device=*/false));
    const std::vector<float> dx = dx_.host;
    GACCD_ASSIGN_OR_RETURN(const std::vector<std::int64_t> counts,
                           GatherFromRanks(static_cast<std::int64_t>(elements_)));
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
    return static_cast<double>(y_[i]) + static_cast<double>(Position(i));
  }

  Status MakeMirror(std::size_t count, Mirror* mirror) {
    mirror->host.resize(count);
    GACCD_ASSIGN_OR_RETURN(mirror->device,
                           device_.Allocate(std::max<std::size_t>(1, count) * sizeof(float)));
    return Status::Ok();
  }
  Status Copy(Mirror& mirror, bool to_device) {
    void* const host = mirror.host.data();
    return device_.Copy(to_device ? mirror.device : host, to_device ? host : mirror.device,
                        mirror.host.size() * sizeof(float), to_device);
  }

  // By rank; the same on all.
  Result<std::vector<std::int64_t>> GatherFromRanks(std::int64_t mine) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(comm_.size()));
    const std::vector<std::int64_t> ones(all.size(), 1);
    GACCD_RETURN_IF_ERROR(
        comm_.AllGather(View(std::span<const std::int64_t>(&mine, 1)), ones, View(std::span(all))));
    return all;
  }

  // J at the present inputs.
  Result<double> Objective() {
    const std::vector<float> before = x_.host;
    GACCD_RETURN_IF_ERROR(Copy(x_, /*to_device=*/true));
    GACCD_RETURN_IF_ERROR(Copy(dy_, /*to_device=*/true));
    GACCD_RETURN_IF_ERROR(executor_->Run(true));
    GACCD_RETURN_IF_ERROR(device_.Copy(y_.data(), executor_->Output<float>(y_id_),
                                       y_.size() * sizeof(float), /*to_device=*/false));
    GACCD_RETURN_IF_ERROR(Copy(x_, /*to_device=*/false));
    notes_.Expect(x_.host == before, "the run changed its input");
    double sum = 0;
    for (std::size_t i = 0; i < y_.size(); ++i) {
      sum += Weight(owner_, Position(i)) * std::sin(Argument(i));
    }
    if (loss_ == Loss::kReplicated && rank_ != 0) sum = 0;  // counted once
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(View(std::span(&sum, 1)), View(std::span(&sum, 1))));
    return sum;
  }

  // dJ/dx[i] of `rank` by central differences.
  Result<double> Difference(int rank, std::size_t i) {
    const float keep = rank == rank_ ? x_.host[i] : 0;
    if (rank == rank_) x_.host[i] = keep + kStep;
    GACCD_ASSIGN_OR_RETURN(const double above, Objective());
    if (rank == rank_) x_.host[i] = keep - kStep;
    GACCD_ASSIGN_OR_RETURN(const double below, Objective());
    if (rank == rank_) x_.host[i] = keep;
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
  GradientDevice& device_;
  const Loss loss_;
  const int rank_;
  std::int64_t owner_ = 0;  // whose weights the loss of this rank has
  std::int64_t first_ = 0;  // position of y[0] in the y of the loss
  std::size_t elements_ = 0;
  FlatLayout layout_;
  Mirror x_, dx_, dy_;
  std::vector<float> y_;
  ValueId y_id_ = -1;
  std::unique_ptr<Executor> executor_;
  Notes notes_;
};

}  // namespace

Result<std::unique_ptr<GradientDevice>> MakeCpuDevice() {
  return std::unique_ptr<GradientDevice>(std::make_unique<CpuDevice>());
}

Status CheckGradient(const GradientRanks& ranks, Loss loss, const Shape& shape,
                     const Record& record) {
  GACCD_ASSIGN_OR_RETURN(const auto device, ranks.make_device());
  Checker checker(ranks.comm, *device, loss);
  GACCD_RETURN_IF_ERROR(checker.Open(shape, record));
  return checker.Run();
}

}  // namespace gaccd::tests
