// Attention and convolutions by a library of GPU kernels.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// LibraryPlan: an operation prepared by a library of GPU kernels, to be run many times.
template <typename Pointers>
class LibraryPlan {
 public:
  virtual ~LibraryPlan() = default;
  [[nodiscard]] virtual std::int64_t workspace_bytes() const = 0;
  // workspace: workspace_bytes(), aligned to 256; its content is not preserved. Cheap: may be
  // called before every Run().
  virtual void Bind(const Pointers& pointers, void* workspace) = 0;
  // Enqueues the operation on CudaContext::compute(), also during stream capture. kInternal before
  // Bind(). A captured graph keeps the current pointers; the plan must outlive it.
  virtual Status Run() = 0;
};

// Scaled dot-product attention by a library: one prepared operation, forward or backward, of the
// function Attention (formulas: daemon/ops/attention/attention.h). bf16 or fp16 with f32 sums.

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

// Convolution by a library: one prepared operation of the function Conv2d (formulas:
// daemon/ops/image/conv2d.h), in bf16 or fp16 with f32 sums.

// Start of the warning that the library does not support a convolution, followed by the reason. The
// difference in speed is not measured: with gaccd's own kernels a ResNet-50 took 4 times the time
// of torch.compile on an H100.
inline constexpr std::string_view kOwnConvolution =
    "convolution by gaccd's own kernels, which are slower: ";

struct ConvSize {
  std::int64_t images = 0, in = 0, out = 0, groups = 1;  // N, C, O
  using Pair = std::array<std::int64_t, 2>;              // height and width
  Pair image{}, result{}, kernel{}, stride{1, 1}, padding{}, dilation{1, 1};

  [[nodiscard]] std::int64_t results() const { return images * result[0] * result[1]; }
  [[nodiscard]] std::int64_t in_of_group() const { return in / groups; }
  [[nodiscard]] std::int64_t area() const { return kernel[0] * kernel[1]; }
  [[nodiscard]] std::int64_t columns() const { return in_of_group() * area(); }
  [[nodiscard]] std::int64_t image_elements() const { return images * image[0] * image[1] * in; }
  // Whether the columns of x are x itself.
  [[nodiscard]] bool is_product() const {
    return area() == 1 && stride == Pair{1, 1} && padding == Pair{0, 0};
  }
  bool operator==(const ConvSize&) const = default;
};

// Operands and result. Layouts: images [N, H, W, C], weights [O, KH, KW, C / groups].
enum class ConvPass {
  kForward,        // x, weight -> y
  kInputGradient,  // dy, weight -> dx
  // dy, x -> dweight in f32. Channels in multiples of kChannelsTogether: cuDNN supports few others,
  // and no depthwise ones on Hopper GPUs.
  kWeightGradient,
};
inline constexpr std::int64_t kChannelsTogether = 8;
// Algorithms that need more are not used.
inline constexpr std::int64_t kMaxConvWorkspace = std::int64_t{1} << 30;

struct ConvSpec {
  DType dtype = DType::kBF16;
  ConvPass pass = ConvPass::kForward;
  bool deterministic = true;  // bit-identical runs
  ConvSize size;

  [[nodiscard]] bool operator==(const ConvSpec&) const = default;
};

// "gradient of the weight of a convolution of 8 images of 56 x 56, 64 -> 256 channels, kernel 1 x
// 1"
[[nodiscard]] std::string ToText(const ConvSpec& spec);

// kInternal, with spec and rule, if the spec is invalid.
Status Check(const ConvSpec& spec);

// GPU memory, aligned to 16 bytes.
struct ConvPointers {
  const void* first = nullptr;   // x, dy or dy
  const void* second = nullptr;  // weight, weight or x
  void* out = nullptr;
};

using ConvPlan = LibraryPlan<ConvPointers>;

class CudaContext;

// A library of attention and convolutions in 16 bits on one GPU: cuDNN in trainings (FindCudnn());
// tests replace it. The CudaContext must outlive it, and it must outlive its plans.
class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  // kUnavailable, with the library's reason, if it does not support the operation: then another
  // kernel is needed. Other kinds are errors. Waits for the GPU, and temporarily needs memory for
  // all operands: the operation runs once, so that everything is loaded before a capture.
  virtual Result<std::unique_ptr<SdpaPlan>> Prepare(const SdpaSpec& spec) = 0;
  virtual Result<std::unique_ptr<ConvPlan>> Prepare(const ConvSpec& spec) = 0;
};

// Starts the library on the context's GPU. kUnavailable, with the reason, if that fails.
using DnnFactory = std::function<Result<std::unique_ptr<DnnLibrary>>(CudaContext& context)>;

// Returns the function that starts cuDNN on a GPU. kUnavailable, with the reason, if gaccd was
// built without cudnn-frontend, or cuDNN is not found or too old (cudnn_api.h). Uses no GPU.
Result<DnnFactory> FindCudnn();

}  // namespace gaccd
