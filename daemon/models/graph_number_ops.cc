#include "daemon/models/graph_op_families.h"
#include "daemon/ops/pointwise/number_functions.h"

namespace gaccd {
namespace {

GraphValue ByNumbers(GraphRecorder& r, NumberKind kind, double a = 0, double b = 0) {
  GraphValue x = r.In(0);
  x.id = r.Apply(std::make_shared<NumberFunction>(kind, a, b), {x.id});
  return x;
}

GraphValue RecordScale(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kAffine, r.Number("factor"), 0);
}

GraphValue RecordShift(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kAffine, 1, r.Number("amount"));
}

GraphValue RecordPower(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kPower, r.Number("exponent"));
}

template <NumberKind kKind>
GraphValue RecordFunction(GraphRecorder& r) {
  return ByNumbers(r, kKind);
}

template <NumberKind kKind>
GraphValue RecordLimits(GraphRecorder& r) {
  const double least = r.Number("least");
  const double most = r.Number("most");
  if (!r.Expect(least <= most, "expected `least` not above `most`")) return {};
  return ByNumbers(r, kKind, least, most);
}

GraphValue RecordEqual(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kEqual, r.Number("to"));
}

GraphValue RecordLess(GraphRecorder& r) {
  return ByNumbers(r, NumberKind::kLess, r.Number("than"));
}

GraphValue RecordNumbers(GraphRecorder& r) {
  GraphValue ids = r.In(0);
  ids.id = r.Apply(std::make_shared<IdFunction>(IdFunctionKind::kIdsToNumbers), {ids.id});
  return ids;
}

}  // namespace

std::vector<GraphOp> NumberOps() {
  constexpr double kLargest = 3e38;
  const auto any = [](std::string_view name) { return Real(name, -kLargest, kLargest); };
  return {
      {"scale", 1, 0, 0, {any("factor")}, RecordScale},
      {"shift", 1, 0, 0, {any("amount")}, RecordShift},
      {"power", 1, 0, 0, {any("exponent")}, RecordPower},
      {"hardsigmoid", 1, 0, 0, {}, RecordFunction<NumberKind::kHardsigmoid>},
      {"exp", 1, 0, 0, {}, RecordFunction<NumberKind::kExp>},
      {"log", 1, 0, 0, {}, RecordFunction<NumberKind::kLog>},
      {"root", 1, 0, 0, {}, RecordFunction<NumberKind::kRoot>},
      {"sin", 1, 0, 0, {}, RecordFunction<NumberKind::kSin>},
      {"cos", 1, 0, 0, {}, RecordFunction<NumberKind::kCos>},
      {"erf", 1, 0, 0, {}, RecordFunction<NumberKind::kErf>},
      {"floor", 1, 0, 0, {}, RecordFunction<NumberKind::kFloor>},
      {"clamp", 1, 0, 0, {any("least"), any("most")}, RecordLimits<NumberKind::kClamp>},
      {"hardtanh", 1, 0, 0, {any("least"), any("most")}, RecordLimits<NumberKind::kHardtanh>},
      {"equal", 1, 0, 0, {any("to")}, RecordEqual},
      {"less", 1, 0, 0, {any("than")}, RecordLess},
      {"numbers", 1, 0, 0, {}, RecordNumbers},
  };
}

}  // namespace gaccd
