#include "daemon/models/graph_ops.h"

#include <algorithm>
#include <iterator>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

const std::vector<GraphOp>& AllOps() {
  static const std::vector<GraphOp> ops = [] {
    std::vector<GraphOp> all;
    for (const auto& family :
         {ValueOps(), ImageOps(), SequenceOps(), LayoutOps(), NumberOps(), ProductOps()}) {
      std::ranges::copy(family, std::back_inserter(all));
    }
    return all;
  }();
  return ops;
}

Status CheckAttribute(const GraphNode& node, const GraphAttributeRule& rule) {
  const auto bad = [&](const std::string& expected, const auto& found) {
    return BadGraph(StrCat(rule.name, ": expected ", expected, ", found ", found));
  };
  const std::string range = StrCat("in [", rule.min_value, ", ", rule.max_value, "]");
  const std::string name(rule.name);
  if (rule.count < 0) {
    const auto number = node.numbers.find(name);
    if (number == node.numbers.end()) return bad("a number", "none");
    if (number->second >= rule.min_value && number->second <= rule.max_value) return Status::Ok();
    return bad(StrCat("a number ", range), number->second);
  }
  const auto integers = node.integers.find(name);
  if (integers == node.integers.end()) return bad("integers", "none");
  if (rule.count == 0) return Status::Ok();
  const auto& values = integers->second;
  if (std::ssize(values) == rule.count && std::ranges::all_of(values, [&](std::int64_t value) {
        return static_cast<double>(value) >= rule.min_value &&
               static_cast<double>(value) <= rule.max_value;
      })) {
    return Status::Ok();
  }
  return bad(StrCat(rule.count, " integers ", range), ToString(values));
}

}  // namespace

const GraphOp* FindGraphOp(std::string_view name) {
  const auto found = std::ranges::find(AllOps(), name, &GraphOp::name);
  return found == AllOps().end() ? nullptr : &*found;
}

Status CheckGraphNode(const GraphNode& node) {
  const GraphOp* op = FindGraphOp(node.op);
  if (op == nullptr) return BadGraph(StrCat("gaccd has no op '", node.op, "'"));
  const std::size_t most = op->values + op->parameters;
  const std::size_t least = most - op->optional;
  if (node.inputs.size() < least || (node.inputs.size() > most && !op->many)) {
    return BadGraph(StrCat(op->name, ": expected ", least,
                           least == most ? "" : StrCat(" to ", most), " inputs, found ",
                           node.inputs.size()));
  }
  for (std::size_t i = 0; i < (op->many ? node.inputs.size() : least); ++i) {
    if (node.inputs[i].empty()) return BadGraph(StrCat(op->name, ": input ", i, " is left out"));
  }
  for (const GraphAttributeRule& rule : op->attributes) {
    GACCD_RETURN_IF_ERROR(CheckAttribute(node, rule).WithContext(op->name));
  }
  const std::size_t found = node.integers.size() + node.numbers.size();
  if (found == op->attributes.size()) return Status::Ok();
  return BadGraph(
      StrCat(op->name, ": expected ", op->attributes.size(), " attributes, found ", found));
}

}  // namespace gaccd
