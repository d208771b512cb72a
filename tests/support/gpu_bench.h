// GpuBench: what a GraphBench recorded and prepared, again on the GPU: the same graph, parameters
// and inputs through the kernels of the GPU. MakerTest: one kernel. Both run on a real GPU and on
// the stand-in.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/cuda.h"
#include "daemon/autograd/executor.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/ops/function_row.h"
#include "tests/support/graph_bench.h"
#include "tests/support/on_gpu.h"

namespace gaccd {

// The context of a test. dnn: the library of attention and convolutions; null: own kernels.
std::unique_ptr<CudaContext> MakeTestContext(const DnnFactory& dnn = nullptr,
                                             CudaNumerics numerics = {.deterministic = true});

// A test of single kernels, as their makers make them for a node.
class MakerTest : public KernelTest {
 protected:
  struct Operand {
    ValueSpec spec;
    void* data;
  };
  // The outputs have the shapes and types that the function infers. Waits.
  Status RunNode(CudaMaker make, const Function& function, const std::vector<Operand>& inputs,
                 const std::vector<void*>& outputs, OutputMask add = {});

 private:
  std::unique_ptr<CudaContext> context_ = MakeTestContext();
  std::vector<std::string> notes_;
};

class GpuBench {
 public:
  struct Options {
    bool fuse = true;
    DType copy = DType::kF32;  // of the parameters, as the optimiser keeps it; f32: none
    DnnFactory dnn = nullptr;
    bool dense = false;                               // without PadRows()
    CudaNumerics numerics = {.deterministic = true};  // nothing is timed
  };
  // Fails the test when a kernel cannot be made.
  GpuBench(Graph graph, const FlatLayout& layout, std::span<const float> parameters,
           const Options& options);
  // With the inputs of `host`, which has been prepared for training.
  GpuBench(GraphBench& host, const Options& options);

  ~GpuBench() { (void)cudaDeviceSynchronize(); }  // before the memory goes
  GpuBench(const GpuBench&) = delete;
  GpuBench& operator=(const GpuBench&) = delete;

  template <typename T>
  void BindInput(ValueId id, std::span<const T> values) {
    BindBytes(id, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void SetParameters(std::span<const float> parameters);

  // Enqueues a micro-step: what a captured graph records.
  // A run is the whole update, as that of a GraphBench.
  Status Enqueue(bool first);
  // A micro-step; waits for it, fails the test on an error.
  void Run(bool first = true);
  template <typename T>
  [[nodiscard]] T Output(ValueId id) const {
    T value{};
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&value, executor_->Output<T>(id), sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return value;
  }
  // As the flat buffer is. What nothing writes, padding, is 1e9.
  [[nodiscard]] std::vector<float> gradients() const { return gradients_->Values(); }
  // The same with 0 there.
  [[nodiscard]] std::vector<float> written_gradients() const {
    std::vector<float> all = gradients();
    std::ranges::replace(all, 1e9F, 0.0F);
    return all;
  }
  // The largest relative error of any parameter's gradient.
  [[nodiscard]] double ErrorOfGradients(GraphBench& host) const;
  // Where the executor writes a value of any kind: for tests that look at activations.
  [[nodiscard]] const Graph& graph() const { return executor_->graph(); }
  [[nodiscard]] CudaContext& context() { return *context_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Prepare(Graph graph, const FlatLayout& layout, std::span<const float> parameters,
               const Options& options);
  void BindBytes(ValueId id, std::span<const char> bytes);

  std::unique_ptr<CudaContext> context_;
  std::vector<std::string> notes_;
  std::unique_ptr<GpuArray<float>> parameters_;
  std::unique_ptr<GpuArray<float>> gradients_;
  std::unique_ptr<GpuArray<std::uint16_t>> copy_;
  std::map<ValueId, std::unique_ptr<GpuArray<char>>> inputs_;
  std::unique_ptr<GpuArray<char>> arena_;
  std::unique_ptr<GpuArray<char>> scratch_;
  std::unique_ptr<GpuArray<char>> kept_;
  std::unique_ptr<KernelFactory> kernels_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace gaccd
