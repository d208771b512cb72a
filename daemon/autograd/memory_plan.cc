#include "daemon/autograd/memory_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "daemon/autograd/function.h"

namespace gaccd {
namespace {

// The first and the last node between which a storage must keep its content.
struct Lifetime {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;

  [[nodiscard]] bool Overlaps(const Lifetime& other) const {
    return first <= other.last && other.first <= last;
  }
};

bool IsPlanned(const Value& value) {
  return value.kind == ValueKind::kActivation || value.kind == ValueKind::kOutput;
}

// The last node that reads each value; readers of a view count as readers of its storage.
std::vector<std::size_t> LastReaders(const Graph& graph, const std::vector<ValueId>& storage) {
  std::vector<std::size_t> last(graph.values().size(), 0);
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const ValueId input : graph.nodes()[i].inputs) last[Index(storage[Index(input)])] = i;
  }
  return last;
}

std::vector<ValueId> ShareStorage(const Graph& graph) {
  std::vector<ValueId> storage(graph.values().size());
  std::iota(storage.begin(), storage.end(), 0);
  for (const Node& node : graph.nodes()) {
    if (node.function->is_view()) storage[Index(node.outputs[0])] = storage[Index(node.inputs[0])];
  }
  std::vector<std::size_t> last = LastReaders(graph, storage);
  // by storage: an output is this storage or a view of it
  std::vector<bool> kept(graph.values().size());
  for (std::size_t v = 0; v < storage.size(); ++v) {
    if (graph.values()[v].kind == ValueKind::kOutput) kept[Index(storage[v])] = true;
  }
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!node.function->can_run_in_place()) continue;
    const ValueId input = storage[Index(node.inputs[0])];
    const ValueId output = node.outputs[0];
    // Another input with the same memory may be read in another order than the output is written.
    const auto same_memory = [&](ValueId other) { return storage[Index(other)] == input; };
    if (std::ranges::count_if(node.inputs, same_memory) > 1) continue;
    const bool free = graph.value(input).kind == ValueKind::kActivation &&
                      last[Index(input)] == i && !kept[Index(input)] && !kept[Index(output)] &&
                      graph.value(output).kind == ValueKind::kActivation &&
                      storage[Index(output)] == output &&
                      graph.value(input).spec.bytes() == graph.value(output).spec.bytes();
    if (!free) continue;
    last[Index(input)] = last[Index(output)];
    // Redirect everything that shares the memory of the output.
    for (ValueId& id : storage) {
      if (id == output) id = input;
    }
  }
  return storage;
}

std::vector<Lifetime> Lifetimes(const Graph& graph, const std::vector<ValueId>& storage) {
  std::vector<Lifetime> lifetimes(graph.values().size());
  const auto touch = [&](ValueId value, std::size_t node) {
    Lifetime& life = lifetimes[Index(storage[Index(value)])];
    life.first = std::min(life.first, node);
    life.last = std::max(life.last, node);
    if (graph.value(value).kind == ValueKind::kOutput) life.last = graph.nodes().size();
  };
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const ValueId input : graph.nodes()[i].inputs) touch(input, i);
    for (const ValueId output : graph.nodes()[i].outputs) touch(output, i);
  }
  return lifetimes;
}

// Whether a segment ends during this lifetime. The input of a sum over the update is read, and its
// output written, at the cut.
bool CrossesCut(const Graph& graph, const Lifetime& life) {
  for (std::size_t i = life.first + 1; i < life.last; ++i) {
    if (graph.nodes()[i].function->ends_segment()) return true;
  }
  return false;
}

// Places values in memory, largest first, each at the lowest offset that is free during its whole
// lifetime.
class Arena {
 public:
  std::int64_t Place(std::int64_t bytes, const Lifetime& life) {
    bytes = (bytes + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment * MemoryPlan::kAlignment;
    std::int64_t begin = 0;
    for (const Placed& other : placed_) {
      if (!other.life.Overlaps(life)) continue;
      if (begin + bytes <= other.begin) break;
      begin = std::max(begin, other.end);
    }
    bytes_ = std::max(bytes_, begin + bytes);
    const Placed entry{begin, begin + bytes, life};
    placed_.insert(
        std::upper_bound(placed_.begin(), placed_.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        entry);
    return begin;
  }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  struct Placed {
    std::int64_t begin, end;
    Lifetime life;
  };
  std::vector<Placed> placed_;  // by begin
  std::int64_t bytes_ = 0;
};

}  // namespace

MemoryPlan PlanMemory(const Graph& graph, std::int64_t micro_steps) {
  MemoryPlan plan;
  plan.storage = ShareStorage(graph);
  plan.offset.assign(graph.values().size(), MemoryPlan::kNone);
  const std::vector<Lifetime> lifetimes = Lifetimes(graph, plan.storage);

  std::vector<std::size_t> order;
  for (std::size_t v = 0; v < graph.values().size(); ++v) {
    const bool owns = plan.storage[v] == static_cast<ValueId>(v);
    const bool used = lifetimes[v].first != std::numeric_limits<std::size_t>::max();
    if (owns && used && IsPlanned(graph.values()[v])) order.push_back(v);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return graph.values()[a].spec.bytes() > graph.values()[b].spec.bytes();
  });
  plan.kept.assign(graph.values().size(), false);
  Arena shared;
  Arena kept;
  for (const std::size_t v : order) {
    plan.kept[v] = micro_steps > 1 && CrossesCut(graph, lifetimes[v]);
    plan.offset[v] =
        (plan.kept[v] ? kept : shared).Place(graph.values()[v].spec.bytes(), lifetimes[v]);
  }
  plan.arena_bytes = shared.bytes();
  plan.kept_bytes = kept.bytes();
  return plan;
}

}  // namespace gaccd
