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

Result<std::optional<bool>> IsEpilogueFaster(CudaContext& context, const MatmulCudaSpec& fused,
                                             const MatmulCudaSpec& plain,
                                             const std::function<Result<double>()>& time_kernel) {
  MatmulChoices& choices = context.choices();
  const auto is_timed = [](const MatmulChoice* choice) {
    return choice != nullptr && choice->microseconds > 0;
  };
  const MatmulChoice* const with = choices.Find(fused);
  const MatmulChoice* const without = choices.Find(plain);
  if (!is_timed(with) || !is_timed(without)) return std::optional<bool>();
  if (with->separate_microseconds == 0) {
    const Result<double> kernel = time_kernel();
    if (!kernel.ok() && kernel.status().kind() == ErrorKind::kOs) {
      choices.AddWarning(StrCat(ToText(fused), ": its epilogue is not compared with a kernel: ",
                                kernel.status().message()));
      return std::optional<bool>();
    }
    if (!kernel.ok()) return kernel.status();
    choices.SetSeparate(fused, without->microseconds + *kernel);
  }
  return std::optional(with->microseconds <= with->separate_microseconds);
}

bool FillsTheGpu(const CudaContext& context, const MatmulCudaSpec& spec) {
  constexpr std::int64_t kTile = 128;
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  return tiles(spec.m) * tiles(spec.n) >= context.multiprocessors();
}

}  // namespace gaccd
