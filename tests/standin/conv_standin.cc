// The convolutions of the stand-in library: sdpa_standin.h.
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "daemon/tensor/float_types.h"
#include "tests/standin/fatal.h"
#include "tests/standin/sdpa_standin.h"
#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

constexpr std::int64_t kWorkspace = 777;  // not a multiple of anything

std::size_t Elements(std::int64_t count) { return static_cast<std::size_t>(count); }

// body(of x, of the weight, of y) for every product of the sums.
template <typename Body>
void ForEachProduct(const ConvSize& z, const Body& body) {
  const std::int64_t outs = z.out / z.groups;
  for (std::int64_t m = 0; m < z.results(); ++m) {
    const std::int64_t n = m / z.result[1] / z.result[0];
    for (std::int64_t o = 0; o < z.out; ++o) {
      for (std::int64_t k = 0; k < z.area(); ++k) {
        const std::int64_t row = m / z.result[1] % z.result[0] * z.stride[0] - z.padding[0] +
                                 k / z.kernel[1] * z.dilation[0];
        const std::int64_t column =
            m % z.result[1] * z.stride[1] - z.padding[1] + k % z.kernel[1] * z.dilation[1];
        if (row < 0 || row >= z.image[0] || column < 0 || column >= z.image[1]) continue;
        const std::int64_t pixel = (n * z.image[0] + row) * z.image[1] + column;
        for (std::int64_t c = 0; c < z.in_of_group(); ++c) {
          body(Elements(pixel * z.in + o / outs * z.in_of_group() + c),
               Elements((o * z.area() + k) * z.in_of_group() + c), Elements(m * z.out + o));
        }
      }
    }
  }
}

template <typename Half>
void Convolve(const ConvSpec& spec, const ConvPointers& at) {
  const ConvSize& z = spec.size;
  const auto* const first = static_cast<const Half*>(at.first);
  const auto* const second = static_cast<const Half*>(at.second);
  const auto product = [&](std::size_t a, std::size_t b) {
    return static_cast<double>(ToFloat(first[a])) * static_cast<double>(ToFloat(second[b]));
  };
  const bool by_weight = spec.pass == ConvPass::kWeightGradient;
  const std::int64_t count = spec.pass == ConvPass::kForward ? z.results() * z.out
                             : by_weight                     ? z.out * z.columns()
                                                             : z.image_elements();
  std::vector<double> sums(Elements(count));
  ForEachProduct(z, [&](std::size_t x, std::size_t weight, std::size_t y) {
    if (spec.pass == ConvPass::kForward) sums[y] += product(x, weight);
    if (spec.pass == ConvPass::kInputGradient) sums[x] += product(y, weight);
    if (by_weight) sums[weight] += product(y, x);
  });
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto sum = static_cast<float>(sums[i]);
    if (by_weight) {
      static_cast<float*>(at.out)[i] = sum;
    } else {
      static_cast<Half*>(at.out)[i] = FromFloat<Half>(sum);
    }
  }
}

class LoopPlan final : public ConvPlan {
 public:
  LoopPlan(const ConvSpec& spec, cudaStream_t stream) : spec_(spec), stream_(stream) {}

  [[nodiscard]] std::int64_t workspace_bytes() const override { return kWorkspace; }
  void Bind(const ConvPointers& pointers, void* workspace) override {
    pointers_ = pointers;
    workspace_ = workspace;
  }
  gaccd::Status Run() override {
    if (!pointers_.has_value()) {
      return {ErrorKind::kInternal, StrCat(ToText(spec_), ": Run() before Bind()")};
    }
    for (const void* pointer :
         {pointers_->first, pointers_->second, static_cast<const void*>(pointers_->out)}) {
      if (pointer == nullptr || reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
        Fatal(StrCat(ToText(spec_), ": an operand at ", pointer, ", not at a multiple of 16"));
      }
    }
    const auto run = [spec = spec_, at = *pointers_, workspace = workspace_] {
      std::memset(workspace, 0xff, kWorkspace);
      WithHalf(spec.dtype, [&]<typename Half>(Half) { Convolve<Half>(spec, at); });
    };
    return CudaStatus(Enqueue(stream_, "convolution of the library", run, Touched()),
                      ToText(spec_));
  }

 private:
  [[nodiscard]] std::vector<Touches> Touched() const {
    const ConvSize& z = spec_.size;
    const std::size_t half = SizeOf(spec_.dtype);
    const std::size_t x = Elements(z.image_elements()) * half;
    const std::size_t y = Elements(z.results() * z.out) * half;
    const std::size_t weight = Elements(z.out * z.columns());
    const ConvPointers& p = *pointers_;
    const Touches workspace{workspace_, kWorkspace};
    switch (spec_.pass) {
      case ConvPass::kForward:
        return {{p.first, x}, {p.second, weight * half}, {p.out, y}, workspace};
      case ConvPass::kInputGradient:
        return {{p.first, y}, {p.second, weight * half}, {p.out, x}, workspace};
      case ConvPass::kWeightGradient:
        return {{p.first, y}, {p.second, x}, {p.out, weight * sizeof(float)}, workspace};
    }
    return {};
  }

  ConvSpec spec_;
  cudaStream_t stream_;
  std::optional<ConvPointers> pointers_;
  void* workspace_ = nullptr;
};

}  // namespace

std::unique_ptr<ConvPlan> MakeConvPlan(const ConvSpec& spec, cudaStream_t stream) {
  return std::make_unique<LoopPlan>(spec, stream);
}

}  // namespace gaccd::standin
