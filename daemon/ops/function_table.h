// The table of all functions that have kernels: the rows next to the functions (function_row.h).
//
// Only for constant expressions (FromFunctionTable): without CUDA the makers of the GPU are
// declared and not linked. Use cpu_kernels.h and cuda_kernels.h.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "daemon/ops/activations.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/autograd_kernels.h"
#include "daemon/ops/batch_norm.h"
#include "daemon/ops/batched_product.h"
#include "daemon/ops/cast.h"
#include "daemon/ops/channels_last.h"
#include "daemon/ops/collective.h"
#include "daemon/ops/combine.h"
#include "daemon/ops/concat.h"
#include "daemon/ops/conv2d.h"
#include "daemon/ops/dropout.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/gated.h"
#include "daemon/ops/group_norm.h"
#include "daemon/ops/join_columns.h"
#include "daemon/ops/label_ranks.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/leaky_relu.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/linear_gelu.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/multiply.h"
#include "daemon/ops/number_functions.h"
#include "daemon/ops/pool2d.h"
#include "daemon/ops/pool_rows.h"
#include "daemon/ops/prepend_row.h"
#include "daemon/ops/rearrange.h"
#include "daemon/ops/relu.h"
#include "daemon/ops/rms_norm.h"
#include "daemon/ops/rotary.h"
#include "daemon/ops/row_functions.h"
#include "daemon/ops/token_cross_entropy.h"

namespace gaccd {

// Fusion rules run in this order.
inline constexpr std::span<const FunctionRow> kFunctions[] = {
    kAutogradRows,
    kActivationRows,
    kAttentionRows,
    kBatchNormRows,
    kBatchedProductRows,
    kCombineRows,
    kConcatRows,
    kNumberFunctionRows,
    kRearrangeRows,
    kCastRows,
    kChannelsLastRows,
    kCollectiveRows,
    kConv2dRows,
    kDropoutRows,
    kEmbeddingRows,
    kGroupNormRows,
    kJoinColumnsRows,
    kLabelRanksRows,
    kLayerNormRows,
    kLeakyReluRows,
    kLinearGeluRows,
    kLinearRows,
    kMeanSquaredErrorRows,
    kMultiplyRows,
    kPool2dRows,
    kPoolRows,
    kPrependRowRows,
    kReluRows,
    kRowFunctionRows,
    kTokenCrossEntropyRows,
    kRmsNormRows,
    kRotaryRows,
    kGatedRows,
};

consteval std::size_t CountFunctions() {
  std::size_t count = 0;
  for (const auto& rows : kFunctions) count += rows.size();
  return count;
}

// Projection of the rows, made by the compiler: the rows themselves are then in no program.
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
