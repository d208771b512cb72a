// The table of all functions with kernels: the rows defined next to the functions (function_row.h).
//
// Only for constant expressions (FromFunctionTable): without CUDA the makers of GPU kernels are
// declared but not linked. Use cpu_kernels.h and cuda_kernels.h.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/layout/prepend_row.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/ops/pointwise/multiply.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/ops/product/batched_product.h"
#include "daemon/ops/product/linear.h"
#include "daemon/ops/product/linear_gelu.h"

namespace gaccd {

// Fusion rules run in this order.
inline constexpr std::span<const FunctionRow> kFunctions[] = {
    kAutogradRows,         kActivationRows, kAttentionRows,    kBatchNormRows,
    kBatchedProductRows,   kCombineRows,    kConcatRows,       kNumberFunctionRows,
    kRearrangeRows,        kCastRows,       kChannelsLastRows, kCollectiveRows,
    kConv2dRows,           kDropoutRows,    kEmbeddingRows,    kGroupNormRows,
    kLabelRanksRows,       kLayerNormRows,  kLinearGeluRows,   kLinearRows,
    kMeanSquaredErrorRows, kMultiplyRows,   kPool2dRows,       kPoolRows,
    kPrependRowRows,       kReluRows,       kRowFunctionRows,  kTokenCrossEntropyRows,
    kRmsNormRows,          kRotaryRows,     kGatedRows,
};

consteval std::size_t CountFunctions() {
  std::size_t count = 0;
  for (const auto& rows : kFunctions) count += rows.size();
  return count;
}

// Projects the rows at compile time, so that the rows themselves are not in the binary.
template <typename Row, typename Project>
consteval auto FromFunctionTable(Project project) {
  std::array<Row, CountFunctions()> projected{};
  std::size_t i = 0;
  for (const auto& rows : kFunctions) {
    for (const FunctionRow& row : rows) projected[i++] = project(row);
  }
  return projected;
}

// The row of this name, or null.
template <typename Row, std::size_t kRows>
const Row* FindRow(const std::array<Row, kRows>& rows, std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace gaccd
