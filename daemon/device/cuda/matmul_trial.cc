#include "daemon/device/cuda/matmul_trial.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/fill_random.h"
#include "daemon/device/cuda/matmul_choices.h"

namespace gaccd {
namespace {

constexpr double kRoundMicroseconds = 200;  // long against the clock's 0.5 us
constexpr int kMaxRuns = 20;                // products in one round
constexpr int kRounds = 3;
constexpr double kHopeless = 3;  // times the best: not timed any further
// Looked at from each end of a matrix. All its tiles go through k alike.
constexpr std::int64_t kMaxLookedAt = 1 << 20;

std::uint32_t BitsOfOne(DType dtype) {
  if (dtype == DType::kF32) return 0x3F800000;
  return dtype == DType::kBF16 ? 0x3F80 : 0x3C00;
}

// `count` ones, as bytes.
std::vector<std::byte> Ones(DType dtype, std::int64_t count) {
  const std::uint32_t one = BitsOfOne(dtype);
  const std::size_t size = SizeOf(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  for (std::size_t at = 0; at < bytes.size(); at += size) std::memcpy(&bytes[at], &one, size);
  return bytes;
}

}  // namespace

MatmulTrial::MatmulTrial(CublasLtProduct& product)
    : product_(&product), stream_(product.context().compute()) {}

// After an error the stream may still work on the operands.
MatmulTrial::~MatmulTrial() {
  if (a_.data != nullptr) (void)cudaStreamSynchronize(stream_);
}

Result<MatmulTrial> MatmulTrial::Create(CublasLtProduct& product) {
  MatmulTrial trial(product);
  GACCD_RETURN_IF_ERROR(trial.Allocate());
  const MatmulCudaSpec& spec = product.spec();
  GACCD_RETURN_IF_ERROR(trial.SetLastTerm(trial.a_, spec.transpose_a, spec.m, spec.k));
  GACCD_RETURN_IF_ERROR(trial.SetLastTerm(trial.b_, !spec.transpose_b, spec.n, spec.k));
  // The same memory serves as bias [n], of the type of C, or as column sums [m] in f32.
  GACCD_RETURN_IF_ERROR(product.Bind({.a = trial.a_.data,
                                      .b = trial.b_.data,
                                      .c = trial.c_.data,
                                      .bias = trial.vector_.data,
                                      .sums = reinterpret_cast<float*>(trial.vector_.data)}));
  GACCD_ASSIGN_OR_RETURN(trial.start_, CudaEvent::Create(CudaEvent::Kind::kTiming));
  GACCD_ASSIGN_OR_RETURN(trial.stop_, CudaEvent::Create(CudaEvent::Kind::kTiming));
  return trial;
}

Status MatmulTrial::Allocate() {
  const MatmulCudaSpec& spec = product_->spec();
  const auto add = [](Operand* operand, DType dtype, std::int64_t values, std::size_t offset) {
    operand->dtype = dtype;
    operand->values = values;
    auto buffer = DeviceBuffer::Allocate(static_cast<std::size_t>(values) * SizeOf(dtype) + offset,
                                         "trying algorithms of a matrix product");
    if (!buffer.ok()) return buffer.status();
    operand->buffer = *std::move(buffer);
    operand->data = operand->buffer.as<std::byte>() + offset;
    return Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(add(&a_, spec.ab, spec.m * spec.k, AlignmentOf(spec.ab)));
  GACCD_RETURN_IF_ERROR(add(&b_, spec.ab, spec.k * spec.n, AlignmentOf(spec.ab)));
  GACCD_RETURN_IF_ERROR(add(&c_, spec.c, spec.m * spec.n, AlignmentOf(spec.c)));
  return add(&vector_, DType::kF32, spec.column_sums ? spec.m : spec.n, kBiasAlignment);
}

Status MatmulTrial::SetLastTerm(const Operand& operand, bool k_is_rows, std::int64_t others,
                                std::int64_t k) {
  const std::size_t size = SizeOf(operand.dtype);
  const auto count = static_cast<std::size_t>(others);
  const std::vector<std::byte> ones = Ones(operand.dtype, others);
  const std::size_t last = static_cast<std::size_t>(k - 1) * size;
  // Stored [k, others]: the last row. Stored [others, k]: the last value of each row.
  const cudaError_t error =
      k_is_rows
          ? cudaMemcpyAsync(operand.data + last * count, ones.data(), count * size,
                            cudaMemcpyHostToDevice, stream_)
          : cudaMemcpy2DAsync(operand.data + last, static_cast<std::size_t>(k) * size, ones.data(),
                              size, size, count, cudaMemcpyHostToDevice, stream_);
  GACCD_RETURN_IF_ERROR(CudaStatus(error, "write the last term of a product on trial"));
  return CudaStatus(cudaStreamSynchronize(stream_), "write the last term of a product on trial");
}

Result<bool> MatmulTrial::IsSound(const cublasLtMatmulAlgo_t& algorithm) {
  const MatmulCudaSpec& spec = product_->spec();
  // What is added to must be 0; what is written must be written: NaN until then.
  const auto clear = [&](const Operand& operand, bool is_added_to) {
    return CudaStatus(
        cudaMemsetAsync(operand.data, is_added_to ? 0 : 0xFF,
                        static_cast<std::size_t>(operand.values) * SizeOf(operand.dtype), stream_),
        "clear a product on trial");
  };
  GACCD_RETURN_IF_ERROR(clear(c_, spec.accumulate));
  if (spec.column_sums) GACCD_RETURN_IF_ERROR(clear(vector_, false));
  const cublasStatus_t status = product_->Enqueue(algorithm);
  if (IsNotOffered(status)) return false;
  GACCD_RETURN_IF_ERROR(ToStatus(status));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), ToText(spec) + " on trial"));
  GACCD_ASSIGN_OR_RETURN(bool sound, IsAllOnes(c_));
  if (sound && spec.column_sums) {
    GACCD_ASSIGN_OR_RETURN(sound, IsAllOnes(vector_));
  }
  if (!sound) {
    product_->context().choices().AddWarning(
        StrCat(ToText(spec), ": an algorithm of cuBLASLt leaves out the last of its ", spec.k,
               " terms, and is not used"));
  }
  return sound;
}

Result<bool> MatmulTrial::IsAllOnes(const Operand& operand) {
  const std::int64_t count = std::min(operand.values, kMaxLookedAt);
  const std::vector<std::byte> ones = Ones(operand.dtype, count);
  std::vector<std::byte> found(ones.size());
  for (const std::int64_t first : {std::int64_t{0}, operand.values - count}) {
    const std::byte* const from =
        operand.data + static_cast<std::size_t>(first) * SizeOf(operand.dtype);
    GACCD_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpyAsync(found.data(), from, found.size(), cudaMemcpyDeviceToHost, stream_),
        "read a product on trial"));
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), "read a product on trial"));
    if (found != ones) return false;
  }
  return true;
}

Status MatmulTrial::FillRandomly() {
  for (const Operand* operand : {&a_, &b_}) {
    GACCD_RETURN_IF_ERROR(FillRandom(operand->buffer, operand->dtype));
  }
  return Status::Ok();
}

Result<double> MatmulTrial::Time(const cublasLtMatmulAlgo_t& algorithm, double best) {
  const auto once = [&] { return ToStatus(product_->Enqueue(algorithm)); };
  GACCD_ASSIGN_OR_RETURN(const double single, Measure(once));
  if (single > kHopeless * best && single > kRoundMicroseconds) return single;
  const int runs = static_cast<int>(
      std::clamp(kRoundMicroseconds / std::max(single, 1.0), 1.0, double{kMaxRuns}));
  GACCD_ASSIGN_OR_RETURN(const CudaGraph graph, CudaGraph::Capture(stream_, [&] {
                           for (int i = 0; i < runs; ++i) GACCD_RETURN_IF_ERROR(once());
                           return Status::Ok();
                         }));
  GACCD_RETURN_IF_ERROR(graph.Launch(stream_));  // the first launch also uploads it
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    GACCD_ASSIGN_OR_RETURN(const double all, Measure([&] { return graph.Launch(stream_); }));
    least = std::min(least, all / runs);
  }
  return least;
}

Status MatmulTrial::ToStatus(cublasStatus_t status) const {
  return CublasLtStatus(product_->context().cublaslt(), status, ToText(product_->spec()));
}

template <typename Work>
Result<double> MatmulTrial::Measure(const Work& work) {
  const char* const what = "time a matrix product";
  float milliseconds = 0;
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(start_.get(), stream_), what));
  GACCD_RETURN_IF_ERROR(work());
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventRecord(stop_.get(), stream_), what));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventSynchronize(stop_.get()), what));
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&milliseconds, start_.get(), stop_.get()), what));
  return 1e3 * double{milliseconds};
}

}  // namespace gaccd
