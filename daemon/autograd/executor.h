// Executor: a graph prepared for one device, replayed as a list of kernels. Used by one thread.
// Call Prepare and Attach (memory) once, then BindInput and Run for each micro-step.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "daemon/autograd/kernel.h"
#include "daemon/autograd/memory_plan.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// The flat buffers of a model, layout->size() elements each; not owned. Null if the graph has no
// such values.
struct FlatBuffers {
  const FlatLayout* layout = nullptr;
  float* parameters = nullptr;
  float* gradients = nullptr;
};

class Executor {
 public:
  // Plans the memory for updates of `micro_steps` micro-steps and makes every kernel. `buffers` and
  // `factory` must outlive the executor. Errors: those of `factory`; kConfig for a graph with both
  // segments and collective operations; kInternal for a value without a flat buffer, or a node
  // whose operands differ from what its function infers.
  static Result<std::unique_ptr<Executor>> Prepare(Graph graph, const FlatBuffers& buffers,
                                                   KernelFactory& factory,
                                                   std::int64_t micro_steps = 1);

  [[nodiscard]] std::int64_t arena_bytes() const { return plan_.arena_bytes; }
  [[nodiscard]] std::int64_t scratch_bytes() const { return scratch_bytes_; }
  // Memory kept between segments, if there are sums over the update and several micro-steps.
  [[nodiscard]] std::int64_t kept_bytes() const { return plan_.kept_bytes; }

  // Sets the memory: 64-byte aligned, at least arena_bytes(), scratch_bytes() and kept_bytes().
  // Several executors may share it if they do not run at the same time; `kept` belongs to one
  // micro-batch until its last segment has run.
  void Attach(void* arena, void* scratch, void* kept = nullptr);

  // REQUIRES: `input` is of kind kInput; `data` stays valid until the run is over.
  void BindInput(ValueId input, const void* data);

  // Called after the node that completes the gradient of a parameter (an index in the layout); at
  // most once per parameter, in the order of the backward. On a GPU that node is enqueued by then.
  // An error ends the run. May be null.
  using Ready = std::function<Status(std::size_t parameter)>;

  // Runs one micro-step. first: the first one of an update, which overwrites parameter gradients;
  // later ones add to them. Stops at the first error of a kernel. REQUIRES: Attach(), and
  // BindInput() for every input.
  Status Run(bool first, const Ready& ready = nullptr);

  // Runs a micro-step in parts: segment 0, cut 0, segment 1, ..., the last segment. A cut is a
  // collective node, or a node that ends a segment; a graph has only one of these kinds. A segment
  // contains no cut, so it can be captured; it may be empty.
  [[nodiscard]] std::size_t collectives() const { return segment_ends_ == 0 ? cuts_.size() : 0; }
  Status RunSegment(std::size_t segment, bool first, const Ready& ready = nullptr);
  // Calls use(parameter) for each gradient that a step of the segment writes: more than once if
  // several do.
  void ForEachGradient(std::size_t segment, const std::function<void(std::size_t)>& use) const;
  Status RunCollective(std::size_t collective);

  // A sum over the update: `own` is complete after the segment before it; the caller must write the
  // sum over all ranks to `all` before the next segment runs: f64 [elements]. Run() cannot do that:
  // it returns kInternal for a graph with segments.
  struct UpdateSumPlace {
    const double* own = nullptr;
    double* all = nullptr;
    std::size_t elements = 0;
  };
  [[nodiscard]] std::size_t update_sums() const { return update_sums_.size(); }
  [[nodiscard]] UpdateSumPlace update_sum(std::size_t sum) const;
  // Index of the sum whose output is `all`. REQUIRES: `all` is the output of such a node.
  [[nodiscard]] std::size_t FindUpdateSum(ValueId all) const;

  // Memory of an output after a run. REQUIRES: kind kOutput.
  template <typename T>
  [[nodiscard]] const T* Output(ValueId output) const {
    return static_cast<const T*>(slots_[Index(plan_.storage[Index(output)])]);
  }

  [[nodiscard]] const Graph& graph() const { return graph_; }

 private:
  struct Step {
    std::unique_ptr<Kernel> kernel;
    std::vector<std::size_t> inputs;  // indices of slots_
    std::vector<std::size_t> outputs;
    OutputMask gradients;                // outputs that are parameter gradients
    OutputMask adds_always;              // those to which an earlier step has written too
    std::vector<std::size_t> writes;     // parameters whose gradients it writes
    std::vector<std::size_t> completes;  // of these, those that no later step adds to
  };

  Executor(Graph graph, const FlatBuffers& buffers, std::int64_t micro_steps);
  Status MakeSteps(KernelFactory& factory);
  Status AddStep(const Node& node, KernelFactory& factory, std::vector<bool>& written);
  void BindStep(Step& step);
  [[nodiscard]] std::pair<std::size_t, std::size_t> StepsOf(std::size_t segment) const;
  Status RunSteps(std::size_t begin, std::size_t end, bool first, const Ready& ready);

  Graph graph_;
  FlatBuffers buffers_;
  MemoryPlan plan_;
  std::vector<Step> steps_;
  // A segment ends before step `end`; the next one begins with step `next`.
  struct Cut {
    std::size_t end = 0;
    std::size_t next = 0;
  };
  std::vector<Cut> cuts_;
  std::size_t segment_ends_ = 0;
  std::vector<Node> update_sums_;
  std::vector<void*> slots_;  // by value: its memory
  std::vector<void*> operand_scratch_;
  void* scratch_ = nullptr;
  std::int64_t scratch_bytes_ = 0;
};

}  // namespace gaccd
