// Scaled dot-product attention by a library: one prepared operation, forward or backward, of the
// function Attention (formulas: daemon/ops/attention/attention.h). bf16 or fp16, sums f32. cuDNN is
// the library (cudnn_plan.h); tests put another one there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "daemon/device/cuda/library_plan.h"

namespace gaccd {

// How a warning begins that gives the reason why the library does not compute an attention. On an
// H100: 18.6 times as long forward, 20.4 backward.
inline constexpr std::string_view kOwnAttention =
    "attention by gaccd's own kernel, some 20 times slower: ";

// What is computed, no pointers. q, k, v: [B, T] rows of H heads of D values, `step` values from
// row to row: H D, or 3 H D where they are the parts of packed rows; likewise their gradients. y,
// dy: [B T, H D].
struct SdpaSpec {
  DType dtype = DType::kBF16;
  bool backward = false;
  bool deterministic = true;  // the same bits at every run; backward costs time and workspace
  std::int64_t sequences = 0, heads = 0, length = 0, width = 0;  // B, H, T, D
  std::int64_t step = 0;
  bool causal = false;
  bool lengths = false;  // sequences end before T

  bool operator==(const SdpaSpec&) const = default;
};

// "attention of 8 sequences of 1024 rows, 12 heads of 64 values, causal"
[[nodiscard]] std::string ToText(const SdpaSpec& spec);

// kInternal, naming spec and rule, when no attention may be asked for like this.
Status Check(const SdpaSpec& spec);

// More workspace than this is not taken. On Hopper and Ampere the deterministic gradient keeps two
// bytes for every pair of rows: 1.6 GB for 64 sequences of 1024 rows with 12 heads; the other one
// is linear in the rows.
inline constexpr std::int64_t kMaxSdpaWorkspace = std::int64_t{8} << 30;
// kUnavailable, naming spec and sizes, when `bytes` of workspace are too much.
Status CheckWorkspace(const SdpaSpec& spec, std::int64_t bytes);

// Memory of the GPU, at multiples of 16 bytes.
struct SdpaPointers {
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  const std::int32_t* lengths = nullptr;  // spec.lengths: [B], each in [0, T]
  void* y = nullptr;                      // written forward, read backward
  float* lse = nullptr;                   // [B, H, T], likewise
  const void* dy = nullptr;               // from here on: backward only
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

// Rows from the length of their sequence on are read where they lie, so
// they have to be finite; what is written there, also to lse, is not defined.
using SdpaPlan = LibraryPlan<SdpaPointers>;

}  // namespace gaccd
