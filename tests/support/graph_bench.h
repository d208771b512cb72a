// GraphBench: a graph with all it needs to run on the CPU. Record, Prepare(), Run(), look.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/memory.h"
#include "daemon/autograd/executor.h"
#include "daemon/autograd/graph.h"
#include "daemon/device/cpu/cpu_context.h"

namespace gaccd {

// `count` numbers in [-limit, limit), a function of the seed.
[[nodiscard]] std::vector<float> RandomValues(std::uint64_t seed, std::size_t count,
                                              double limit = 1);

// |a - b| / |b|, Euclidean norms. 0 when both are 0.
[[nodiscard]] double RelativeError(std::span<const float> a, std::span<const float> b);

class GraphBench {
 public:
  static constexpr float kWeight = 0.375F;  // d objective / d loss_sum

  Graph& graph() { return graph_; }

  // Filled with RandomValues(): parameter i of two benches starts the same, and so does input i.
  ValueId Parameter(const std::string& name, const Shape& shape, double limit = 1);
  ValueId Input(const std::string& name, const Shape& shape);
  ValueId Input(const std::string& name, const Shape& shape, std::vector<float> values);
  ValueId Labels(std::int64_t rows, std::int64_t classes);
  // Whole numbers in [0, limit), of type i32.
  ValueId Ids(const std::string& name, const Shape& shape, std::int64_t limit);
  ValueId Ids(const std::string& name, const Shape& shape, std::vector<std::int32_t> values);
  // Of type i64.
  ValueId Longs(const std::string& name, std::vector<std::int64_t> values);
  // The outputs of function(inputs); fails the test and returns {0} when it is refused.
  std::vector<ValueId> ApplyAll(std::shared_ptr<const Function> function,
                                std::vector<ValueId> inputs);
  ValueId Apply(std::shared_ptr<const Function> function, std::vector<ValueId> inputs) {
    return ApplyAll(std::move(function), std::move(inputs))[0];
  }

  // [M, a, b, ...] -> [M, a b ...]
  ValueId Rows(ValueId x);

  struct Options {
    bool simplify = true;
    bool fuse = false;      // as a replica does
    bool packed = false;    // as if many micro-steps made up an update
    bool bf16 = false;      // products are
    bool f64_sums = false;  // of products
    // Asked before gaccd's kernels, null: it has none. For functions that only a test has.
    std::function<std::unique_ptr<Kernel>(const KernelRequest&)> own_kernel = nullptr;
  };
  // Records the gradients of `objective` (f64 [1]).
  void RecordTraining(ValueId objective);
  // The same, and prepares the executor.
  void PrepareTraining(ValueId objective, const Options& options);
  void PrepareTraining(ValueId objective) { PrepareTraining(objective, Options{}); }
  // Prepares the executor for what was recorded: outputs are to be marked before.
  void Prepare(const Options& options);

  // A run; packs the weights before if there are packed ones.
  void Run(bool first = true);
  // Prepares and runs what was recorded; the values of `y`.
  std::vector<float> RunAndRead(ValueId y);
  [[nodiscard]] double objective() const { return *executor_->Output<double>(objective_); }

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  std::span<float> parameters() { return parameters_; }
  std::span<float> gradients() { return gradients_; }
  std::span<float> parameter(const std::string& name) { return Part(parameters_, name); }
  std::span<float> gradient(const std::string& name) { return Part(gradients_, name); }
  // The content of a float input, as it was filled.
  std::span<const float> input(ValueId id) const { return floats_[static_cast<std::size_t>(id)]; }
  // By value: the integer inputs.
  [[nodiscard]] const std::map<ValueId, std::vector<std::int32_t>>& ids() const { return ids_; }
  [[nodiscard]] const std::map<ValueId, std::vector<std::int64_t>>& longs() const { return longs_; }
  Executor& executor() { return *executor_; }
  // What other devices need to run the same: values by id (-1: there is none).
  [[nodiscard]] ValueId objective_id() const { return objective_; }
  [[nodiscard]] ValueId seed_input() const { return seed_input_; }
  [[nodiscard]] ValueId label_input() const { return label_input_; }
  [[nodiscard]] std::span<const std::int32_t> labels() const { return labels_; }

 private:
  std::span<float> Part(std::vector<float>& all, const std::string& name) const;

  Graph graph_;
  FlatLayout layout_;
  std::vector<float> parameters_;
  std::vector<float> gradients_;
  std::vector<std::vector<float>> floats_;  // by value: content of the float inputs
  std::map<ValueId, std::vector<std::int32_t>> ids_;
  std::map<ValueId, std::vector<std::int64_t>> longs_;
  std::uint64_t inputs_ = 0;
  std::vector<std::int32_t> labels_;
  ValueId label_input_ = -1;
  ValueId seed_input_ = -1;
  ValueId objective_ = -1;
  std::unique_ptr<CpuContext> context_;
  std::unique_ptr<KernelFactory> kernels_;
  std::unique_ptr<Executor> executor_;
  HostBuffer arena_;
  HostBuffer scratch_;
};

}  // namespace gaccd
