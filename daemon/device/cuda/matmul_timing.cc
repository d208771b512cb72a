#include "daemon/device/cuda/matmul_timing.h"

#include <limits>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "daemon/device/cuda/matmul_trial.h"

namespace gaccd {
namespace {

struct Choice {
  std::optional<MatmulChoice> choice;
  MatmulChoices::Source source = MatmulChoices::Source::kUntimed;
};

Result<std::optional<MatmulChoice>> First(MatmulTrial& trial, const MatmulCudaSpec& spec,
                                          const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    GACCD_ASSIGN_OR_RETURN(const bool sound, trial.IsSound(candidate));
    if (sound) return std::optional(MatmulChoice{.spec = spec, .algorithm = candidate});
  }
  return std::optional<MatmulChoice>();
}

Result<std::optional<MatmulChoice>> Fastest(MatmulTrial& trial, const MatmulCudaSpec& spec,
                                            const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  std::vector<cublasLtMatmulAlgo_t> sound_ones;
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    GACCD_ASSIGN_OR_RETURN(const bool sound, trial.IsSound(candidate));
    if (sound) sound_ones.push_back(candidate);
  }
  GACCD_RETURN_IF_ERROR(trial.FillRandomly());
  std::optional<MatmulChoice> best;
  for (const cublasLtMatmulAlgo_t& candidate : sound_ones) {
    const double limit =
        best.has_value() ? best->microseconds : std::numeric_limits<double>::infinity();
    GACCD_ASSIGN_OR_RETURN(const double microseconds, trial.Time(candidate, limit));
    if (microseconds < limit) {
      // A measured time of 0 would mean "not timed".
      best = MatmulChoice{spec, candidate, std::max(microseconds, 1e-3)};
    }
  }
  return best;
}

// The kept choice, if the library accepts it and it is sound.
Result<std::optional<MatmulChoice>> Kept(CublasLtProduct& product, MatmulTrial& trial) {
  MatmulChoices& choices = product.context().choices();
  const MatmulChoice* const kept = choices.FindKept(product.spec());
  if (kept == nullptr) return std::optional<MatmulChoice>();
  if (product.Accepts(kept->algorithm)) {
    GACCD_ASSIGN_OR_RETURN(const bool sound, trial.IsSound(kept->algorithm));
    if (sound) return std::optional(*kept);
  }
  choices.AddNote(StrCat(ToText(product.spec()), ": the kept choice cannot be used, timed again"));
  return std::optional<MatmulChoice>();
}

// Empty: no algorithm is sound.
Result<Choice> Choose(CublasLtProduct& product) {
  using Source = MatmulChoices::Source;
  const MatmulCudaSpec& spec = product.spec();
  CudaContext& context = product.context();
  GACCD_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> candidates, product.Candidates());
  if (candidates.empty()) return Choice{};

  Result<MatmulTrial> trial = MatmulTrial::Create(product);
  if (!trial.ok() && trial.status().kind() == ErrorKind::kOs) {
    context.choices().AddWarning(StrCat(ToText(spec), ": not tried: ", trial.status().message()));
    if (MayLoseLastTerms(spec)) return Choice{};
    return Choice{MatmulChoice{.spec = spec, .algorithm = candidates.front()}, Source::kUntimed};
  }
  if (!trial.ok()) return trial.status();
  if (!IsTimed(context.numerics())) {
    GACCD_ASSIGN_OR_RETURN(const auto first, First(*trial, spec, candidates));
    return Choice{first, Source::kUntimed};
  }
  GACCD_ASSIGN_OR_RETURN(const std::optional<MatmulChoice> kept, Kept(product, *trial));
  if (kept.has_value()) return Choice{kept, Source::kKept};
  GACCD_ASSIGN_OR_RETURN(const auto fastest, Fastest(*trial, spec, candidates));
  return Choice{fastest, Source::kTimed};
}

}  // namespace

Result<std::optional<cublasLtMatmulAlgo_t>> ChooseAlgorithm(CublasLtProduct& product) {
  MatmulChoices& choices = product.context().choices();
  if (const MatmulChoice* made = choices.Find(product.spec()); made != nullptr) {
    return std::optional(made->algorithm);
  }
  Result<Choice> made = Choose(product);
  product.Unbind();  // from the memory of the trial
  if (!made.ok()) return made.status();
  if (!made->choice.has_value()) return std::optional<cublasLtMatmulAlgo_t>();
  choices.Add(*made->choice, made->source);
  return std::optional(made->choice->algorithm);
}

}  // namespace gaccd
