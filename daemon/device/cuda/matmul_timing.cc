#include "daemon/device/cuda/matmul_timing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "collectives/base/cuda.h"
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

// Operands with which a product can be tried, aligned as badly as real ones may be: random where
// the time counts, else zero.
class Scratch {
 public:
  static Result<Scratch> Allocate(const MatmulCudaSpec& spec, cudaStream_t stream, bool random) {
    const auto ab = static_cast<std::size_t>(AlignmentOf(spec.ab));
    const auto c = static_cast<std::size_t>(AlignmentOf(spec.c));
    Scratch scratch(stream);
    const auto add = [&](DType dtype, std::int64_t rows, std::int64_t columns,
                         std::size_t offset) -> Result<std::byte*> {
      const std::size_t bytes =
          static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * SizeOf(dtype);
      GACCD_ASSIGN_OR_RETURN(
          DeviceBuffer buffer,
          DeviceBuffer::Allocate(bytes + offset, "trying algorithms of a matrix product"));
      if (random) GACCD_RETURN_IF_ERROR(FillRandom(buffer, dtype));
      scratch.buffers_.push_back(std::move(buffer));
      return scratch.buffers_.back().as<std::byte>() + offset;
    };
    GACCD_ASSIGN_OR_RETURN(scratch.pointers_.a, add(spec.ab, spec.m, spec.k, ab));
    GACCD_ASSIGN_OR_RETURN(scratch.pointers_.b, add(spec.ab, spec.k, spec.n, ab));
    GACCD_ASSIGN_OR_RETURN(scratch.pointers_.c, add(spec.c, spec.m, spec.n, c));
    // The same memory serves as bias [n], of the type of C, or as column sums [m] in f32.
    const std::int64_t elements = 4 / static_cast<std::int64_t>(SizeOf(spec.c));
    GACCD_ASSIGN_OR_RETURN(std::byte* const bias,
                           add(spec.c, elements, std::max(spec.m, spec.n), kBiasAlignment));
    scratch.pointers_.bias = bias;
    scratch.pointers_.sums = reinterpret_cast<float*>(bias);
    return scratch;
  }
  Scratch(Scratch&&) = default;
  // After an error the stream may still work on it.
  ~Scratch() {
    if (!buffers_.empty()) (void)cudaStreamSynchronize(stream_);
  }
  [[nodiscard]] const MatmulPointers& pointers() const { return pointers_; }

 private:
  explicit Scratch(cudaStream_t stream) : stream_(stream) {}

  cudaStream_t stream_;
  std::vector<DeviceBuffer> buffers_;
  MatmulPointers pointers_;
};

class Trial {
 public:
  static Result<Trial> Create(CublasLtProduct& product) {
    const CudaContext& context = product.context();
    GACCD_ASSIGN_OR_RETURN(Scratch scratch, Scratch::Allocate(product.spec(), context.compute(),
                                                              IsTimed(context.numerics())));
    GACCD_RETURN_IF_ERROR(product.Bind(scratch.pointers()));
    Trial trial(product, std::move(scratch));
    GACCD_ASSIGN_OR_RETURN(trial.start_, CudaEvent::Create(CudaEvent::Kind::kTiming));
    GACCD_ASSIGN_OR_RETURN(trial.stop_, CudaEvent::Create(CudaEvent::Kind::kTiming));
    return trial;
  }

  // Once, and waits. False: the library refuses it after all.
  Result<bool> Runs(const cublasLtMatmulAlgo_t& algorithm) {
    const cublasStatus_t status = product_->Enqueue(algorithm);
    if (IsNotOffered(status)) return false;
    GACCD_RETURN_IF_ERROR(ToStatus(status));
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaStreamSynchronize(stream_), ToText(product_->spec()) + " on trial"));
    return true;
  }

  // The time of one product in microseconds; given up where it is far from `best`.
  // REQUIRES: Runs().
  Result<double> Time(const cublasLtMatmulAlgo_t& algorithm, double best) {
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

 private:
  Trial(CublasLtProduct& product, Scratch scratch)
      : product_(&product), stream_(product.context().compute()), scratch_(std::move(scratch)) {}

  Status ToStatus(cublasStatus_t status) {
    return CublasLtStatus(product_->context().cublaslt(), status, ToText(product_->spec()));
  }

  template <typename Work>
  Result<double> Measure(const Work& work) {
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

  CublasLtProduct* product_;
  cudaStream_t stream_;
  Scratch scratch_;
  CudaEvent start_, stop_;
};

struct Choice {
  std::optional<MatmulChoice> choice;
  MatmulChoices::Source source = MatmulChoices::Source::kUntimed;
};

Result<std::optional<MatmulChoice>> First(Trial& trial, const MatmulCudaSpec& spec,
                                          const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    GACCD_ASSIGN_OR_RETURN(const bool runs, trial.Runs(candidate));
    if (runs) return std::optional(MatmulChoice{.spec = spec, .algorithm = candidate});
  }
  return std::optional<MatmulChoice>();
}

Result<std::optional<MatmulChoice>> Fastest(Trial& trial, const MatmulCudaSpec& spec,
                                            const std::vector<cublasLtMatmulAlgo_t>& candidates) {
  std::optional<MatmulChoice> best;
  for (const cublasLtMatmulAlgo_t& candidate : candidates) {
    GACCD_ASSIGN_OR_RETURN(const bool runs, trial.Runs(candidate));
    if (!runs) continue;
    const double limit =
        best.has_value() ? best->microseconds : std::numeric_limits<double>::infinity();
    GACCD_ASSIGN_OR_RETURN(const double microseconds, trial.Time(candidate, limit));
    if (microseconds < limit) {
      // A clock that shows nothing must not look like "not timed".
      best = MatmulChoice{spec, candidate, std::max(microseconds, 1e-3)};
    }
  }
  return best;
}

// The kept choice, if the library takes it and it runs.
Result<std::optional<MatmulChoice>> Kept(CublasLtProduct& product, Trial& trial) {
  MatmulChoices& choices = product.context().choices();
  const MatmulChoice* const kept = choices.FindKept(product.spec());
  if (kept == nullptr) return std::optional<MatmulChoice>();
  if (product.Accepts(kept->algorithm)) {
    GACCD_ASSIGN_OR_RETURN(const bool runs, trial.Runs(kept->algorithm));
    if (runs) return std::optional(*kept);
  }
  choices.AddNote(StrCat(ToText(product.spec()), ": cuBLASLt refuses the kept choice, timed anew"));
  return std::optional<MatmulChoice>();
}

// Without a choice: no algorithm runs.
Result<Choice> Choose(CublasLtProduct& product) {
  using Source = MatmulChoices::Source;
  const MatmulCudaSpec& spec = product.spec();
  CudaContext& context = product.context();
  GACCD_ASSIGN_OR_RETURN(const std::vector<cublasLtMatmulAlgo_t> candidates, product.Candidates());
  if (candidates.empty()) return Choice{};

  Result<Trial> trial = Trial::Create(product);
  if (!trial.ok() && trial.status().kind() == ErrorKind::kOs) {
    context.choices().AddNote(StrCat(ToText(spec), ": not tried: ", trial.status().message()));
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
  if (!made.ok()) return std::move(made).status();
  if (!made->choice.has_value()) return std::optional<cublasLtMatmulAlgo_t>();
  choices.Add(*made->choice, made->source);
  return std::optional(made->choice->algorithm);
}

}  // namespace gaccd
