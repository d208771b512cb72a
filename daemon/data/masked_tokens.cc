#include "daemon/data/masked_tokens.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// Differs from the layer numbers of dropout (ops/pointwise/dropout.h), which count from 0.
constexpr std::uint64_t kMaskStream = std::uint64_t{1} << 32;

// A probability in units of 2^-32.
std::uint64_t ToFixedPoint(double probability) {
  return static_cast<std::uint64_t>(probability * 0x1p32);
}

std::size_t TensorIndex(const SampleSpec& spec, std::string_view name) {
  return static_cast<std::size_t>(spec.Find(name) - spec.tensors.data());
}

class MaskedDataset final : public DerivedDataset {
 public:
  MaskedDataset(std::unique_ptr<Dataset> base, const MaskedTokensSpec& masked)
      : DerivedDataset(std::move(base)),
        tokens_(TensorIndex(spec_, "tokens")),
        mask_token_(static_cast<std::int32_t>(masked.mask_token)),
        masked_(ToFixedPoint(masked.probability)),
        is_special_(static_cast<std::size_t>(spec_.vocabulary)) {
    if (spec_.Find("lengths") != nullptr) lengths_ = TensorIndex(spec_, "lengths");
    for (const std::int64_t token : masked.special_token) {
      is_special_[static_cast<std::size_t>(token)] = true;
    }
    spec_.tensors.push_back({"labels", DType::kI32, spec_.tensors[tokens_].shape});
    spec_.classes = spec_.vocabulary;
    spec_.ignored_label = kIgnoredLabel;
  }

  // Texts that only have special tokens are unlabelled.
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    constexpr std::size_t kPart = 64;
    const BatchMemory memory(base_->spec(), kPart);
    const std::int64_t row = spec_.tensors[tokens_].elements();
    std::int64_t unlabelled = 0;
    for (std::size_t at = 0; at < indices.size(); at += kPart) {
      const auto part = indices.subspan(at, std::min(kPart, indices.size() - at));
      BatchView texts = memory.view();
      texts.samples = std::ssize(part);
      base_->Gather(part, texts);
      for (std::int64_t i = 0; i < texts.samples; ++i) {
        const std::int64_t length = lengths_ ? texts.tensor<std::int32_t>(*lengths_)[i] : row;
        const std::int32_t* tokens = texts.tensor<std::int32_t>(tokens_) + i * row;
        unlabelled += std::all_of(tokens, tokens + length, [this](std::int32_t token) {
          return is_special_[static_cast<std::size_t>(token)];
        });
      }
    }
    return {.unlabelled = unlabelled};
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    BatchView rest = out;
    rest.tensors = out.tensors.first(out.tensors.size() - 1);
    base_->Gather(indices, rest);
    const std::int64_t row = out.length > 0 ? out.length : spec_.tensors[tokens_].elements();
    const std::uint64_t stream = StreamKey(out.augmentation_seed, kMaskStream);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::int64_t at = static_cast<std::int64_t>(i) * row;
      const std::int64_t length = lengths_ ? out.tensor<std::int32_t>(*lengths_)[i] : row;
      Mask(StreamKey(stream, static_cast<std::uint64_t>(indices[i])), length, row,
           out.tensor<std::int32_t>(tokens_) + at,
           out.tensor<std::int32_t>(rest.tensors.size()) + at);
    }
  }

 private:
  void Mask(std::uint64_t key, std::int64_t length, std::int64_t row, std::int32_t* tokens,
            std::int32_t* labels) const {
    static const std::uint64_t kMask = ToFixedPoint(0.8);
    static const std::uint64_t kMaskOrAny = ToFixedPoint(0.9);
    std::fill_n(labels, row, kIgnoredLabel);
    const auto draw = [key](std::int64_t t) {
      return StreamValue(key, static_cast<std::uint64_t>(t));
    };
    const auto is_special = [this, tokens](std::int64_t t) {
      return is_special_[static_cast<std::size_t>(tokens[t])];
    };
    std::uint64_t least = 0xffffffffU;
    for (std::int64_t t = 0; t < length; ++t) {
      if (!is_special(t)) least = std::min(least, draw(t) & 0xffffffffU);
    }
    const std::uint64_t end = std::max(masked_, least + 1);
    for (std::int64_t t = 0; t < length; ++t) {
      if ((draw(t) & 0xffffffffU) >= end || is_special(t)) continue;
      labels[t] = tokens[t];
      const std::uint64_t kind = draw(t) >> 32;
      if (kind < kMask) {
        tokens[t] = mask_token_;
      } else if (kind < kMaskOrAny) {
        const std::uint64_t any = StreamValue(key, kMaskStream + static_cast<std::uint64_t>(t));
        tokens[t] = static_cast<std::int32_t>(any % is_special_.size());
      }
    }
  }

  std::size_t tokens_;  // in the spec
  std::optional<std::size_t> lengths_;
  std::int32_t mask_token_;
  std::uint64_t masked_;          // probability in units of 2^-32
  std::vector<bool> is_special_;  // by token
};

}  // namespace

std::unique_ptr<Dataset> MakeMaskedDataset(std::unique_ptr<Dataset> base,
                                           const MaskedTokensSpec& masked) {
  return std::make_unique<MaskedDataset>(std::move(base), masked);
}

}  // namespace gaccd
