#include "daemon/device/cuda/matmul_trial.h"

#include <algorithm>
#include <cstring>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/device/cuda/matmul_choices.h"

namespace gaccd {
namespace {

// Number of values compared at each end of a matrix, at least a tile. All tiles run through k
// alike, and reading more would slow down the choice among dozens of algorithms per product.
constexpr std::int64_t kMaxChecked = 1 << 16;

// The bits of a number in each type, and the tolerance in units in the last place.
struct Number {
  std::uint32_t f32, bf16, fp16;
  std::uint32_t half_units = 0;

  [[nodiscard]] std::uint32_t bits(DType dtype) const {
    if (dtype == DType::kF32) return f32;
    return dtype == DType::kBF16 ? bf16 : fp16;
  }
  [[nodiscard]] std::uint32_t units(DType dtype) const {
    return dtype == DType::kF32 ? 0 : half_units;
  }
};
constexpr Number kOne{0x3F800000, 0x3F80, 0x3C00};
// 0.841192 and 1.082964, with tanh, which the library may approximate. With erf they are 0.841345
// and 1.083316, which 16 bits cannot distinguish.
constexpr Number kGeluOfOne{0x3F57585C, 0x3F57, 0x3ABB, 4};
constexpr Number kGeluSlopeAtOne{0x3F8A9E91, 0x3F8B, 0x3C55, 4};

const Number& ExpectedNumber(MatmulGelu gelu) {
  if (gelu == MatmulGelu::kNone) return kOne;
  return gelu == MatmulGelu::kGradient ? kGeluSlopeAtOne : kGeluOfOne;
}

// `count` ones, as bytes.
std::vector<std::byte> Ones(DType dtype, std::int64_t count) {
  const std::uint32_t one = kOne.bits(dtype);
  const std::size_t size = SizeOf(dtype);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size);
  for (std::size_t at = 0; at < bytes.size(); at += size) std::memcpy(&bytes[at], &one, size);
  return bytes;
}

// Whether all values in `bytes` are at most `units` from `bits`, which implies the same sign.
template <typename Bits>
bool AreAll(const std::vector<std::byte>& bytes, std::uint32_t bits, std::uint32_t units) {
  bool all = true;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Bits)) {
    Bits found{};
    std::memcpy(&found, &bytes[at], sizeof found);
    all &= found - bits + units <= 2 * units;  // modulo 2^32
  }
  return all;
}

}  // namespace

MatmulTrial::MatmulTrial(CublasLtProduct& product)
    : product_(&product), stream_(product.context().compute()) {}

// After an error the stream may still use the operands.
MatmulTrial::~MatmulTrial() {
  if (a_.data != nullptr) (void)cudaStreamSynchronize(stream_);
}

Result<MatmulTrial> MatmulTrial::Create(CublasLtProduct& product) {
  MatmulTrial trial(product);
  GACCD_RETURN_IF_ERROR(trial.Allocate());
  const MatmulCudaSpec& spec = product.spec();
  GACCD_RETURN_IF_ERROR(trial.FillRowGaps());
  GACCD_RETURN_IF_ERROR(trial.SetLastTerm(trial.a_, spec.transpose_a));
  GACCD_RETURN_IF_ERROR(trial.SetLastTerm(trial.b_, !spec.transpose_b));
  // The same memory is the bias [n], of the type of C, or the column sums in f32.
  GACCD_RETURN_IF_ERROR(product.Bind({.a = trial.a_.data,
                                      .b = trial.b_.data,
                                      .c = trial.c_.data,
                                      .bias = trial.vector_.data,
                                      .sums = reinterpret_cast<float*>(trial.vector_.data),
                                      .aux = trial.aux_.data}));
  if (spec.gelu == MatmulGelu::kGradient) GACCD_RETURN_IF_ERROR(trial.SetOnes(trial.aux_));
  return trial;
}

Status MatmulTrial::Allocate() {
  const MatmulCudaSpec& spec = product_->spec();
  const auto add = [](Operand* operand, DType dtype, std::int64_t rows, std::int64_t columns,
                      std::int64_t stride, std::size_t offset) {
    operand->dtype = dtype;
    operand->rows = rows;
    operand->columns = columns;
    operand->stride = stride > 0 ? stride : columns;
    auto buffer =
        DeviceBuffer::Allocate(operand->bytes() + offset, "trying algorithms of a matrix product");
    if (!buffer.ok()) return buffer.status();
    operand->buffer = *std::move(buffer);
    operand->data = operand->buffer.as<std::byte>() + offset;
    return Status::Ok();
  };
  const std::int64_t rows_a = spec.transpose_a ? spec.k : spec.m;
  const std::int64_t rows_b = spec.transpose_b ? spec.n : spec.k;
  const std::int64_t columns_b = spec.transpose_b ? spec.k : spec.n;
  GACCD_RETURN_IF_ERROR(
      add(&a_, spec.ab, rows_a, spec.columns_a(), spec.stride_a, OperandAlignment(spec.ab)));
  GACCD_RETURN_IF_ERROR(add(&b_, spec.ab, rows_b, columns_b, 0, OperandAlignment(spec.ab)));
  GACCD_RETURN_IF_ERROR(add(&c_, spec.c, spec.m, spec.n, spec.stride_c, OperandAlignment(spec.c)));
  if (spec.has_aux()) {
    GACCD_RETURN_IF_ERROR(add(&aux_, spec.c, spec.m, spec.n, 0, OperandAlignment(spec.c)));
  }
  const std::int64_t sums = spec.column_sums ? spec.m : spec.n;
  return add(&vector_, DType::kF32, 1, sums, 0, kBiasAlignment);
}

// Gaps between rows are NaN: an algorithm that reads them is not sound.
Status MatmulTrial::FillRowGaps() {
  const std::size_t row = static_cast<std::size_t>(a_.columns) * SizeOf(a_.dtype);
  if (a_.pitch() == row) return Status::Ok();
  return CudaStatus(cudaMemset2DAsync(a_.data + row, a_.pitch(), 0xFF, a_.pitch() - row,
                                      static_cast<std::size_t>(a_.rows), stream_),
                    "fill the gaps of a product on trial");
}

Status MatmulTrial::SetLastTerm(const Operand& operand, bool k_is_rows) {
  const std::size_t size = SizeOf(operand.dtype);
  const auto rows = static_cast<std::size_t>(operand.rows);
  const auto columns = static_cast<std::size_t>(operand.columns);
  const std::vector<std::byte> ones =
      Ones(operand.dtype, k_is_rows ? operand.columns : operand.rows);
  const cudaError_t error =
      k_is_rows ? cudaMemcpyAsync(operand.data + (rows - 1) * operand.pitch(), ones.data(),
                                  ones.size(), cudaMemcpyHostToDevice, stream_)
                : cudaMemcpy2DAsync(operand.data + (columns - 1) * size, operand.pitch(),
                                    ones.data(), size, size, rows, cudaMemcpyHostToDevice, stream_);
  GACCD_RETURN_IF_ERROR(CudaStatus(error, "write the last term of a product on trial"));
  return CudaStatus(cudaStreamSynchronize(stream_), "write the last term of a product on trial");
}

Result<bool> MatmulTrial::IsSound(const cublasLtMatmulAlgo_t& algorithm) {
  const MatmulCudaSpec& spec = product_->spec();
  // Accumulated outputs start as 0; others start as NaN, so that missing writes are detected.
  const auto clear = [&](const Operand& operand, bool is_added_to) {
    return CudaStatus(
        cudaMemsetAsync(operand.data, is_added_to ? 0 : 0xFF, operand.bytes(), stream_),
        "clear a product on trial");
  };
  GACCD_RETURN_IF_ERROR(clear(c_, spec.accumulate));
  if (spec.writes_sums()) GACCD_RETURN_IF_ERROR(clear(vector_, false));
  if (spec.gelu == MatmulGelu::kKeep) GACCD_RETURN_IF_ERROR(clear(aux_, false));
  const cublasStatus_t status = product_->Enqueue(algorithm);
  if (IsUnsupported(status)) return false;
  GACCD_RETURN_IF_ERROR(ToStatus(status));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), ToText(spec) + " on trial"));
  const Number& c = ExpectedNumber(spec.gelu);
  GACCD_ASSIGN_OR_RETURN(bool sound, Holds(c_, c.bits(spec.c), c.units(spec.c)));
  if (sound && spec.writes_sums()) {
    GACCD_ASSIGN_OR_RETURN(sound, Holds(vector_, kOne.f32, 0));
  }
  if (sound && spec.has_aux()) {  // an aux that is only read is unchanged
    GACCD_ASSIGN_OR_RETURN(sound, Holds(aux_, kOne.bits(spec.c), 0));
  }
  if (!sound) {
    product_->context().choices().AddWarning(
        StrCat(ToText(spec), ": an algorithm of cuBLASLt leaves out the last of its ", spec.k,
               " terms", spec.gelu == MatmulGelu::kNone ? "" : " or computes GELU wrongly",
               spec.stride_a > 0 ? " or reads beyond a row" : "", ", and is not used"));
  }
  return sound;
}

MatmulTrial::Ends MatmulTrial::CheckedEnds(const Operand& operand) {
  Ends part;
  part.columns = std::min(operand.columns, kMaxChecked);
  part.rows = std::min(operand.rows, kMaxChecked / part.columns);
  part.first[1] = static_cast<std::size_t>(operand.rows - part.rows) * operand.pitch() +
                  static_cast<std::size_t>(operand.columns - part.columns) * SizeOf(operand.dtype);
  return part;
}

Status MatmulTrial::SetOnes(const Operand& operand) {
  const auto [rows, columns, ends] = CheckedEnds(operand);
  const std::vector<std::byte> ones = Ones(operand.dtype, rows * columns);
  const std::size_t width = static_cast<std::size_t>(columns) * SizeOf(operand.dtype);
  for (const std::size_t first : ends) {
    GACCD_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpy2DAsync(operand.data + first, operand.pitch(), ones.data(), width, width,
                          static_cast<std::size_t>(rows), cudaMemcpyHostToDevice, stream_),
        "write the aux of a product on trial"));
  }
  return CudaStatus(cudaStreamSynchronize(stream_), "write the aux of a product on trial");
}

Result<bool> MatmulTrial::Holds(const Operand& operand, std::uint32_t bits, std::uint32_t units) {
  const auto [rows, columns, ends] = CheckedEnds(operand);
  const std::size_t size = SizeOf(operand.dtype);
  const std::size_t width = static_cast<std::size_t>(columns) * size;
  std::vector<std::byte> found(static_cast<std::size_t>(rows) * width);
  for (const std::size_t first : ends) {
    GACCD_RETURN_IF_ERROR(CudaStatus(
        cudaMemcpy2DAsync(found.data(), width, operand.data + first, operand.pitch(), width,
                          static_cast<std::size_t>(rows), cudaMemcpyDeviceToHost, stream_),
        "read a product on trial"));
    GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream_), "read a product on trial"));
    const bool all = size == 4 ? AreAll<std::uint32_t>(found, bits, units)
                               : AreAll<std::uint16_t>(found, bits, units);
    if (!all) return false;
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
  return TimeWork(
      stream_, [&] { return ToStatus(product_->Enqueue(algorithm)); }, best);
}

Status MatmulTrial::ToStatus(cublasStatus_t status) const {
  return CublasLtStatus(product_->context().cublaslt(), status, ToText(product_->spec()));
}

}  // namespace gaccd
