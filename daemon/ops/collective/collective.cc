#include "daemon/ops/collective/collective.h"

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

constexpr auto kPerRank = GradConvention::kPerRankLoss;

Status CheckF32(std::span<const ValueSpec> inputs) {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  if (inputs[0].dtype == DType::kF32) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("the input: expected f32, found ", Name(inputs[0].dtype), " ",
                                     ToString(inputs[0].shape))};
}

// Types that ranks add.
Status CheckSummed(const ValueSpec& input) {
  if (input.dtype == DType::kF32 || input.dtype == DType::kF64) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("the input: expected f32 or f64, found ", Name(input.dtype),
                                     " ", ToString(input.shape))};
}

Status CheckDivisor(std::int64_t count) {
  if (count >= 1) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("expected a count of at least 1, found ", count)};
}

// The sum of the rows of all ranks. kConfig: invalid rank, negative rows, overflow.
Result<std::int64_t> TotalRows(const RowsByRank& rows) {
  if (rows.rank < 0 || rows.rank >= std::ssize(rows.rows)) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected a rank below ", rows.rows.size(), ", found ", rows.rank));
  }
  std::int64_t total = 0;
  for (std::size_t r = 0; r < rows.rows.size(); ++r) {
    if (rows.rows[r] < 0 || __builtin_add_overflow(total, rows.rows[r], &total)) {
      return Status(ErrorKind::kConfig,
                    StrCat("rank ", r, " has ", rows.rows[r], " rows: negative, or too many"));
    }
  }
  return total;
}

// The spec of the input, whose rows must be `expected`, with `made` rows instead.
OutputSpecs WithRows(const ValueSpec& input, std::int64_t expected, std::int64_t made) {
  if (input.shape.empty() || input.shape[0] != expected) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected ", expected, " rows, found ", ToString(input.shape)));
  }
  ValueSpec output = input;
  output.shape[0] = made;
  return std::vector<ValueSpec>{output};
}

std::int64_t OwnRowCount(const RowsByRank& rows) {
  return rows.rows[static_cast<std::size_t>(rows.rank)];
}

}  // namespace

OutputSpecs AllReduceSum::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.empty()) return Status(ErrorKind::kConfig, "expected at least one input, found none");
  for (const ValueSpec& input : inputs) GACCD_RETURN_IF_ERROR(CheckSummed(input));
  return std::vector<ValueSpec>(inputs.begin(), inputs.end());
}

Status AllReduceSum::Gradient(GradientScope& scope) const {
  std::shared_ptr<const Function> gradient = std::make_shared<Identity>();
  if (convention_ == kPerRank) gradient = std::make_shared<AllReduceSum>();
  for (std::size_t i = 0; i < scope.inputs(); ++i) {
    if (!scope.HasOutputGradient(i)) continue;
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(i, gradient, {scope.OutputGradient(i)}));
  }
  return Status::Ok();
}

OutputSpecs AllReduceMean::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckF32(inputs));
  GACCD_RETURN_IF_ERROR(CheckDivisor(count_));
  return std::vector<ValueSpec>{inputs[0]};
}

Status AllReduceMean::Gradient(GradientScope& scope) const {
  std::shared_ptr<const Function> gradient = std::make_shared<DivideByCount>(count_);
  if (convention_ == kPerRank) gradient = std::make_shared<AllReduceMean>(count_);
  return scope.SetInputGradient(0, std::move(gradient), {scope.OutputGradient(0)});
}

OutputSpecs AllGather::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t total, TotalRows(rows_));
  return WithRows(inputs[0], OwnRowCount(rows_), total);
}

Status AllGather::Gradient(GradientScope& scope) const {
  std::shared_ptr<const Function> gradient = std::make_shared<OwnRows>(rows_);
  if (convention_ == kPerRank) gradient = std::make_shared<ReduceScatter>(rows_);
  return scope.SetInputGradient(0, std::move(gradient), {scope.OutputGradient(0)});
}

OutputSpecs ReduceScatter::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckSummed(inputs[0]));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t total, TotalRows(rows_));
  return WithRows(inputs[0], total, OwnRowCount(rows_));
}

Status ReduceScatter::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<AllGather>(rows_), {scope.OutputGradient(0)});
}

OutputSpecs Broadcast::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  if (root_ >= 0) return std::vector<ValueSpec>{inputs[0]};
  return Status(ErrorKind::kConfig, StrCat("expected a root of at least 0, found ", root_));
}

Status Broadcast::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<BroadcastGradient>(root_, convention_),
                                {scope.OutputGradient(0)});
}

OutputSpecs DivideByCount::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckF32(inputs));
  GACCD_RETURN_IF_ERROR(CheckDivisor(count_));
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs OwnRows::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckF32(inputs));
  GACCD_ASSIGN_OR_RETURN(const std::int64_t total, TotalRows(rows_));
  return WithRows(inputs[0], total, OwnRowCount(rows_));
}

OutputSpecs BroadcastGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckF32(inputs));
  return std::vector<ValueSpec>{inputs[0]};
}

}  // namespace gaccd
