#include "daemon/device/cpu/matmul.h"

#include "collectives/base/strings.h"
#include "daemon/device/cpu/f64_product.h"
#include "daemon/device/cpu/onednn_compat.h"
#include "daemon/device/cpu/packed_weights.h"

namespace gaccd {
namespace {

using Tag = dnnl::memory::format_tag;
using Desc = dnnl::memory::desc;
using Type = dnnl::memory::data_type;

Desc MatrixDesc(std::int64_t rows, std::int64_t columns, bool transposed, Type type = Type::f32) {
  return Desc({rows, columns}, type, transposed ? Tag::ba : Tag::ab);
}

dnnl::primitive_attr Attributes(const MatmulSpec& spec) {
  dnnl::post_ops post_ops;
  if (spec.accumulate) post_ops.append_sum(1.0F);
  if (spec.multiply) {
    post_ops.append_binary(dnnl::algorithm::binary_mul, MatrixDesc(spec.m, spec.n, false));
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(post_ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

}  // namespace

Result<Matmul> Matmul::Prepare(CpuContext& context, const MatmulSpec& spec) {
  if (context.f64_sums()) {
    Matmul matmul;
    matmul.f64_ = spec;
    matmul.scratch_bytes_ = kF64ScratchBytes;
    return matmul;
  }
  try {
    const Type type = spec.bf16 ? Type::bf16 : Type::f32;
    const Desc a = MatrixDesc(spec.m, spec.k, spec.transpose_a, type);
    const Desc plain_b = spec.blocked_b ? Desc({spec.k, spec.n}, type, Tag::BA16a64b2a)
                                        : MatrixDesc(spec.k, spec.n, spec.transpose_b,
                                                     spec.packed_b != nullptr ? Type::f32 : type);
    const Desc b = spec.packed_b != nullptr ? Desc({spec.k, spec.n}, type, Tag::any) : plain_b;
    const Desc bias = MatrixDesc(1, spec.n, false);
    const Desc c = MatrixDesc(spec.m, spec.n, false, spec.bf16_c ? Type::bf16 : Type::f32);
    const auto describe = [&](const auto&... operands) {
      return DescribeOperation<dnnl::matmul>(context.engine(), Attributes(spec), operands...);
    };
    const auto primitive_desc = spec.bias ? describe(a, b, bias, c) : describe(a, b, c);

    Matmul matmul;
    matmul.stream_ = context.stream();
    matmul.primitive_ = dnnl::matmul(primitive_desc);
    const auto unbound = [&](const Desc& d) { return dnnl::memory(d, context.engine(), nullptr); };
    matmul.a_ = unbound(a);
    matmul.c_ = unbound(c);
    matmul.scratch_ = unbound(primitive_desc.scratchpad_desc());
    matmul.scratch_bytes_ = static_cast<std::int64_t>(primitive_desc.scratchpad_desc().get_size());
    matmul.packed_ = spec.packed_b != nullptr && primitive_desc.weights_desc() != plain_b;
    if (matmul.packed_) {
      matmul.b_ =
          context.packed_weights().Get(spec.packed_b, plain_b, primitive_desc.weights_desc());
    } else {
      matmul.b_ = unbound(plain_b);
    }
    matmul.args_ = {{DNNL_ARG_SRC, matmul.a_.get()},
                    {DNNL_ARG_WEIGHTS, matmul.b_.get()},
                    {DNNL_ARG_DST, matmul.c_.get()},
                    {DNNL_ARG_SCRATCHPAD, matmul.scratch_.get()}};
    if (spec.bias) {
      matmul.bias_ = unbound(bias);
      matmul.args_.push_back({DNNL_ARG_BIAS, matmul.bias_.get()});
    }
    if (spec.multiply) {
      matmul.factors_ = unbound(MatrixDesc(spec.m, spec.n, false));
      matmul.args_.push_back(
          {DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, matmul.factors_.get()});
    }
    return matmul;
  } catch (const dnnl::error& error) {
    return Status(ErrorKind::kInternal, StrCat("oneDNN product [", spec.m, ", ", spec.k, "] x [",
                                               spec.k, ", ", spec.n, "]: ", error.what()));
  }
}

void Matmul::Bind(const void* a, const void* b, const float* bias, void* c, void* scratch,
                  const float* factors) {
  if (f64_) {
    f64_operands_ = {.a = static_cast<const float*>(a),
                     .b = f64_->packed_b != nullptr ? f64_->packed_b : static_cast<const float*>(b),
                     .bias = f64_->bias ? bias : nullptr,
                     .c = static_cast<float*>(c),
                     .scratch = static_cast<double*>(scratch),
                     .factors = f64_->multiply ? factors : nullptr};
    return;
  }
  // oneDNN's handles are mutable; it only reads A, B, the bias and the factors.
  a_.set_data_handle(const_cast<void*>(a));
  if (!packed_) b_.set_data_handle(const_cast<void*>(b));
  if (bias_) bias_.set_data_handle(const_cast<float*>(bias));
  if (factors_) factors_.set_data_handle(const_cast<float*>(factors));
  c_.set_data_handle(c);
  scratch_.set_data_handle(scratch);
}

void Matmul::RunF64() const {
  const MatmulSpec& spec = *f64_;
  const F64Operands& at = f64_operands_;
  const std::int64_t a_row = spec.transpose_a ? 1 : spec.k;
  const std::int64_t a_step = spec.transpose_a ? spec.m : 1;
  const std::int64_t b_row = spec.transpose_b ? 1 : spec.n;
  const std::int64_t b_step = spec.transpose_b ? spec.k : 1;
  const auto read = [](const float* from, std::int64_t step, std::int64_t count, double* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = from[i * step];
  };
  F64Product(
      spec.m, spec.n, spec.k,
      [&](std::int64_t i, std::int64_t first, std::int64_t count, double* to) {
        read(at.a + i * a_row + first * a_step, a_step, count, to);
      },
      [&](std::int64_t l, std::int64_t first, std::int64_t count, double* to) {
        read(at.b + l * b_row + first * b_step, b_step, count, to);
      },
      [&](std::int64_t i, std::int64_t first, std::int64_t count, const double* sums) {
        for (std::int64_t j = first; j < first + count; ++j) {
          float& c = at.c[i * spec.n + j];
          const double bias = at.bias != nullptr ? at.bias[j] : 0.0;
          c = static_cast<float>(sums[j - first] + bias + (spec.accumulate ? c : 0.0F));
          if (at.factors != nullptr) c *= at.factors[i * spec.n + j];
        }
      },
      at.scratch);
}

Status Matmul::Run() {
  if (f64_) {
    RunF64();
    return Status::Ok();
  }
  return DnnlStatus(dnnl_primitive_execute(primitive_.get(), stream_.get(),
                                           static_cast<int>(args_.size()), args_.data()),
                    "oneDNN product");
}

Status TransposedProduct(const float* a, const float* b, std::int64_t m, std::int64_t n,
                         std::int64_t k, bool accumulate, float* c) {
  return DnnlStatus(dnnl_sgemm('T', 'N', m, n, k, 1.0F, a, m, b, n, accumulate ? 1.0F : 0.0F, c, n),
                    "oneDNN product of a transposed matrix");
}

Status PrepareTransposedProducts() {
  constexpr std::int64_t kSide = 64;  // a small product needs less code
  const std::vector<float> ones(kSide * kSide, 1);
  std::vector<float> sums(kSide * kSide);
  return TransposedProduct(ones.data(), ones.data(), kSide, kSide, kSide, /*accumulate=*/false,
                           sums.data());
}

}  // namespace gaccd
