#include "daemon/engine/update_graph.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/collective/collective_kernels.h"

namespace gaccd {

namespace {

std::vector<ValueSpec> MakeSpecs(std::span<const MutableBuffer> buffers) {
  std::vector<ValueSpec> specs;
  for (const MutableBuffer& buffer : buffers) {
    specs.push_back({.shape = {static_cast<std::int64_t>(buffer.count)}, .dtype = buffer.dtype});
  }
  return specs;
}

std::vector<void*> Addresses(std::span<const MutableBuffer> buffers) {
  std::vector<void*> memory;
  for (const MutableBuffer& buffer : buffers) memory.push_back(buffer.data);
  return memory;
}

// The part of this rank.
Result<MutableBuffer> OwnPart(const MutableBuffer& whole, const RowsByRank& rows) {
  std::int64_t first = 0;
  std::int64_t all = 0;
  for (std::size_t r = 0; r < rows.rows.size(); ++r) {
    if (std::cmp_less(r, rows.rank)) first += rows.rows[r];
    all += rows.rows[r];
  }
  if (std::cmp_not_equal(all, whole.count) || std::cmp_greater_equal(rows.rank, rows.rows.size())) {
    return Status(ErrorKind::kInternal,
                  StrCat("expected parts of ", whole.count, " elements for rank ", rows.rank,
                         ", found ", rows.rows.size(), " parts of ", all));
  }
  MutableBuffer part = whole;
  part.data =
      static_cast<std::byte*>(whole.data) + static_cast<std::size_t>(first) * SizeOf(whole.dtype);
  part.count = static_cast<std::size_t>(rows.rows[static_cast<std::size_t>(rows.rank)]);
  return part;
}

bool IsSum(const Function& function) {
  return function.name() == "all_reduce_sum" || function.name() == "reduce_scatter";
}

}  // namespace

Status UpdateGraph::AllReduceSum(Communicator& comm, std::span<const MutableBuffer> values,
                                 StreamHandle stream) {
  return Record(comm, std::make_shared<gaccd::AllReduceSum>(), values, values, stream);
}

Status UpdateGraph::ReduceScatter(Communicator& comm, const MutableBuffer& whole,
                                  std::vector<std::int64_t> counts, StreamHandle stream) {
  const RowsByRank rows{std::move(counts), comm.rank()};
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer part, OwnPart(whole, rows));
  return Record(comm, std::make_shared<gaccd::ReduceScatter>(rows), {&whole, 1}, {&part, 1},
                stream);
}

Status UpdateGraph::AllGather(Communicator& comm, const MutableBuffer& whole,
                              std::vector<std::int64_t> counts, StreamHandle stream) {
  const RowsByRank rows{std::move(counts), comm.rank()};
  GACCD_ASSIGN_OR_RETURN(const MutableBuffer part, OwnPart(whole, rows));
  return Record(comm, std::make_shared<gaccd::AllGather>(rows), {&part, 1}, {&whole, 1}, stream);
}

Status UpdateGraph::Broadcast(Communicator& comm, const MutableBuffer& values,
                              StreamHandle stream) {
  return Record(comm, std::make_shared<gaccd::Broadcast>(/*root=*/0), {&values, 1}, {&values, 1},
                stream);
}

Status UpdateGraph::Record(Communicator& comm, const std::shared_ptr<const Function>& function,
                           std::span<const MutableBuffer> inputs,
                           std::span<const MutableBuffer> outputs, StreamHandle stream) {
  const std::vector<ValueSpec> in_specs = MakeSpecs(inputs);
  const std::vector<ValueSpec> out_specs = MakeSpecs(outputs);
  std::vector<ValueId> values;
  for (const ValueSpec& spec : in_specs) values.push_back(graph_.AddInput("update", spec));
  GACCD_RETURN_IF_ERROR(graph_.Apply(function, std::move(values)).status());
  const std::vector<const float*> parameters(inputs.size());
  GACCD_ASSIGN_OR_RETURN(
      auto kernel,
      MakeCollective({*function, in_specs, out_specs, parameters},
                     {.comm = &comm, .memory = inputs.front().memory, .stream = stream}));
  const std::vector<void*> in = Addresses(inputs);
  const std::vector<void*> out = Addresses(outputs);
  kernel->Bind({.inputs = in, .outputs = out});
  nodes_.push_back({.kernel = std::move(kernel), .repeatable = !IsSum(*function)});
  return Status::Ok();
}

Status UpdateGraph::Run(const Nodes& nodes) {
  for (std::size_t i = nodes.begin; i < nodes.end; ++i) {
    Node& node = nodes_[i];
    if (node.done && !node.repeatable) {
      return {ErrorKind::kInternal,
              StrCat("'", graph_.nodes()[i].function->name(), "', ", i, " of ", nodes_.size(),
                     ": a second sum in one update would count the first one again on every rank")};
    }
    GACCD_RETURN_IF_ERROR(node.kernel->Run({}));
    node.done = true;
  }
  return Status::Ok();
}

void UpdateGraph::NextUpdate() {
  for (Node& node : nodes_) node.done = false;
}

Result<BucketPlan> GradientBuckets(const FlatLayout& layout, std::size_t bucket_elements) {
  const std::span<const FlatEntry> entries = layout.entries();
  std::vector<GradientSlot> slots;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Backward starts at the end of the model: the last parameter's gradient is ready first.
    slots.push_back({.offset = static_cast<std::size_t>(entries[i].offset),
                     .elements = static_cast<std::size_t>(entries[i].elements),
                     .ready = static_cast<int>(entries.size() - i)});
  }
  return BucketPlan::Make(slots, static_cast<std::size_t>(layout.size()), bucket_elements);
}

}  // namespace gaccd
