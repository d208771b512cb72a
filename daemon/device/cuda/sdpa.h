// Scaled dot-product attention by a library: one prepared operation, forward or backward, of the
// function Attention (formulas: daemon/ops/attention/attention.h). bf16 or fp16 with f32 sums. The
// library is cuDNN (cudnn_plan.h); tests replace it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/library_plan.h"

namespace gaccd {

// Start of the warning that the library does not support an attention, followed by the reason. On
// an H100 gaccd's kernel takes 18.6 times as long forward, 20.4 times backward.
inline constexpr std::string_view kOwnAttention =
    "attention by gaccd's own kernel, some 20 times slower: ";

// The operation without pointers. q, k, v: [B, T] rows of H heads of D values, `step` values from
// row to row: H D, or 3 H D for parts of packed rows; their gradients likewise. y, dy: [B T, H D].
struct SdpaSpec {
  DType dtype = DType::kBF16;
  bool backward = false;
  bool deterministic = true;  // bit-identical runs; costs time and workspace in the backward
  std::int64_t sequences = 0, heads = 0, length = 0, width = 0;  // B, H, T, D
  std::int64_t step = 0;
  bool causal = false;
  bool lengths = false;  // sequences may be shorter than T

  bool operator==(const SdpaSpec&) const = default;
};

// "attention of 8 sequences of 1024 rows, 12 heads of 64 values, causal"
[[nodiscard]] std::string ToText(const SdpaSpec& spec);

// kInternal, with spec and rule, if the spec is invalid.
Status Check(const SdpaSpec& spec);

// Limit of the workspace. On Hopper and Ampere the deterministic gradient keeps two bytes for every
// pair of rows: 1.6 GB for 64 sequences of 1024 rows with 12 heads; the other one is linear in the
// rows.
inline constexpr std::int64_t kMaxSdpaWorkspace = std::int64_t{8} << 30;
// kUnavailable, with spec and sizes, if `bytes` of workspace exceed the limit.
Status CheckWorkspace(const SdpaSpec& spec, std::int64_t bytes);

// GPU memory, aligned to 16 bytes.
struct SdpaPointers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const std::int32_t* lengths = nullptr;  // with spec.lengths: [B], each in [0, T]
  void* y = nullptr;                      // written forward, read backward
  float* lse = nullptr;                   // [B, H, T], written forward, read backward
  const void* dy = nullptr;               // this and the following: backward only
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

// Rows beyond the length of their sequence are read, so they must be finite; the values written
// there, also to lse, are undefined.
using SdpaPlan = LibraryPlan<SdpaPointers>;

}  // namespace gaccd
