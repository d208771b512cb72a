#include "tests/standin/sdpa_standin.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/tensor/float_types.h"
#include "tests/standin/fatal.h"
#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

struct Setup {
  std::mutex mutex;
  SdpaOptions options;
  SdpaCounters counters;
};
Setup& TheSetup() {
  static Setup setup;
  return setup;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One head of one sequence, and where its rows, of type Half, and sums lie.
template <typename Half>
struct Head {
  const SdpaSpec& z;
  const SdpaPointers& at;
  std::int64_t sequence, head, known;

  Head(const SdpaSpec& spec, const SdpaPointers& pointers, std::int64_t n)
      : z(spec), at(pointers), sequence(n / spec.heads), head(n % spec.heads), known(spec.length) {
    if (!spec.lengths) return;
    known = pointers.lengths[sequence];
    if (known < 0 || known > z.length) {
      Fatal(StrCat("attention: a length of ", known, ", expected 0 to ", z.length));
    }
  }
  template <typename T>  // `step` between rows
  [[nodiscard]] T* Row(T* first, std::int64_t i, std::int64_t step) const {
    return first + (sequence * z.length + i) * step + head * z.width;
  }
  [[nodiscard]] const Half* In(const void* first, std::int64_t i) const {
    return Row(static_cast<const Half*>(first), i, z.step);
  }
  [[nodiscard]] Half* Out(void* first, std::int64_t i) const {
    return Row(static_cast<Half*>(first), i, z.heads * z.width);
  }
  [[nodiscard]] float& Sum(std::int64_t i) const {
    return at.lse[(sequence * z.heads + head) * z.length + i];
  }
  [[nodiscard]] bool Sees(std::int64_t i, std::int64_t j) const {
    return i < known && j < known && (!z.causal || j <= i);
  }
  [[nodiscard]] double Dot(const Half* a, const Half* b) const {
    double sum = 0;
    for (std::int64_t d = 0; d < z.width; ++d) {
      sum += static_cast<double>(ToFloat(a[d])) * static_cast<double>(ToFloat(b[d]));
    }
    return sum;
  }
  [[nodiscard]] double Score(std::int64_t i, std::int64_t j) const {
    return Dot(In(at.q, i), In(at.k, j)) / std::sqrt(static_cast<double>(z.width));
  }
};

// to = values, or NaN from the length on.
template <typename Half>
void Store(const Head<Half>& h, std::int64_t i, const double* values, Half* to) {
  for (std::int64_t d = 0; d < h.z.width; ++d) {
    to[d] = FromFloat<Half>(i < h.known ? static_cast<float>(values[d]) : kNan);
  }
}

template <typename Half>
void Forward(const Head<Half>& h) {
  for (std::int64_t i = 0; i < h.z.length; ++i) {
    std::vector<double> y(static_cast<std::size_t>(h.z.width));
    double sum = 0;
    for (std::int64_t j = 0; j < h.z.length; ++j) {
      if (!h.Sees(i, j)) continue;
      const double p = std::exp(h.Score(i, j));
      sum += p;
      const Half* v = h.In(h.at.v, j);
      for (std::size_t d = 0; d < y.size(); ++d) y[d] += p * static_cast<double>(ToFloat(v[d]));
    }
    for (double& value : y) value /= sum;
    Store(h, i, y.data(), h.Out(h.at.y, i));
    h.Sum(i) = i < h.known ? static_cast<float>(std::log(sum)) : kNan;
  }
}

template <typename Half>
void Backward(const Head<Half>& h) {
  const auto width = static_cast<std::size_t>(h.z.width);
  const std::size_t all = static_cast<std::size_t>(h.z.length) * width;
  std::vector<double> dq(all), dk(all), dv(all);
  const double scale = 1 / std::sqrt(static_cast<double>(h.z.width));
  for (std::int64_t i = 0; i < h.z.length; ++i) {
    const Half* dy = h.Out(const_cast<void*>(h.at.dy), i);
    const double delta = h.Dot(dy, h.Out(h.at.y, i));
    for (std::int64_t j = 0; j < h.z.length; ++j) {
      // Sums that are not finite reach the gradients also where nothing is seen.
      const auto lse = static_cast<double>(h.Sum(i));
      const double p = h.Sees(i, j) ? std::exp(h.Score(i, j) - lse) : 0 * lse;
      const double ds = p * (h.Dot(dy, h.In(h.at.v, j)) - delta) * scale;
      const std::size_t row = static_cast<std::size_t>(i) * width;
      const std::size_t key = static_cast<std::size_t>(j) * width;
      for (std::size_t d = 0; d < width; ++d) {
        dv[key + d] += p * static_cast<double>(ToFloat(dy[d]));
        dq[row + d] += ds * static_cast<double>(ToFloat(h.In(h.at.k, j)[d]));
        dk[key + d] += ds * static_cast<double>(ToFloat(h.In(h.at.q, i)[d]));
      }
    }
  }
  for (std::int64_t i = 0; i < h.z.length; ++i) {
    const std::size_t row = static_cast<std::size_t>(i) * width;
    Store(h, i, &dq[row], h.Row(static_cast<Half*>(h.at.dq), i, h.z.step));
    Store(h, i, &dk[row], h.Row(static_cast<Half*>(h.at.dk), i, h.z.step));
    Store(h, i, &dv[row], h.Row(static_cast<Half*>(h.at.dv), i, h.z.step));
  }
}

// As cuDNN's on Hopper: for a deterministic gradient two bytes a pair of rows, else dq in f32. Not
// a multiple of anything.
std::int64_t WorkspaceBytes(const SdpaSpec& z) {
  if (!z.backward) return 0;
  const std::int64_t rows = z.sequences * z.heads * z.length;
  return 1001 + rows * (z.deterministic ? 2 * z.length : 4 * z.width);
}

// What cuDNN's plan runs on once, so that it is loaded. Who asks for a plan must have the room.
Status TryRoom(std::initializer_list<std::int64_t> all_bytes) {
  std::vector<DeviceBuffer> buffers;
  for (const std::int64_t bytes : all_bytes) {
    GACCD_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                           DeviceBuffer::Allocate(static_cast<std::size_t>(bytes), "operands"));
    buffers.push_back(std::move(buffer));
  }
  return Status::Ok();
}

class Plan final : public SdpaPlan {
 public:
  Plan(const SdpaSpec& spec, cudaStream_t stream) : spec_(spec), stream_(stream) {}

  [[nodiscard]] std::int64_t workspace_bytes() const override { return WorkspaceBytes(spec_); }
  void Bind(const SdpaPointers& pointers, void* workspace) override {
    pointers_ = pointers;
    workspace_ = workspace;
  }
  Status Run() override {
    if (pointers_.q == nullptr) {
      return {ErrorKind::kInternal, StrCat(ToText(spec_), ": Run() before Bind()")};
    }
    CheckPointers();
    const auto run = [spec = spec_, at = pointers_, workspace = workspace_,
                      bytes = workspace_bytes()] {
      std::fill_n(static_cast<std::uint8_t*>(workspace), bytes, std::uint8_t{0xff});
      for (std::int64_t n = 0; n < spec.sequences * spec.heads; ++n) {
        WithHalf(spec.dtype, [&]<typename Half>(Half) {
          const Head<Half> head(spec, at, n);
          spec.backward ? Backward(head) : Forward(head);
        });
      }
      const std::lock_guard lock(TheSetup().mutex);
      ++TheSetup().counters.ran;
    };
    return CudaStatus(Enqueue(stream_, "attention of the library", run, Touched()), ToText(spec_));
  }

 private:
  void CheckPointers() const {
    const SdpaPointers& p = pointers_;
    for (const void* pointer :
         {p.q, p.k, p.v, static_cast<const void*>(p.y), p.dy, static_cast<const void*>(p.dq),
          static_cast<const void*>(p.dk), static_cast<const void*>(p.dv)}) {
      if (reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0) {
        Fatal(StrCat(ToText(spec_), ": an operand at ", pointer, ", not at a multiple of 16"));
      }
    }
    if (spec_.backward != (p.dy != nullptr && p.dq != nullptr)) {
      Fatal(StrCat(ToText(spec_), ": operands of the other direction"));
    }
  }
  [[nodiscard]] std::vector<Touches> Touched() const {
    const std::int64_t rows = spec_.sequences * spec_.length;
    const auto last = static_cast<std::size_t>((rows - 1) * spec_.step + spec_.heads * spec_.width);
    const auto plain =
        static_cast<std::size_t>(rows * spec_.heads * spec_.width) * SizeOf(spec_.dtype);
    const SdpaPointers& p = pointers_;
    std::vector<Touches> touched = {
        {p.q, last * SizeOf(spec_.dtype)},
        {p.k, last * SizeOf(spec_.dtype)},
        {p.v, last * SizeOf(spec_.dtype)},
        {p.y, plain},
        {p.lse, static_cast<std::size_t>(rows * spec_.heads) * sizeof(float)}};
    if (spec_.lengths) {
      touched.push_back(
          {p.lengths, static_cast<std::size_t>(spec_.sequences) * sizeof(std::int32_t)});
    }
    if (!spec_.backward) return touched;
    touched.push_back({p.dy, plain});
    for (const void* out : {p.dq, p.dk, p.dv}) touched.push_back({out, last * SizeOf(spec_.dtype)});
    touched.push_back({workspace_, static_cast<std::size_t>(workspace_bytes())});
    return touched;
  }

  SdpaSpec spec_;
  cudaStream_t stream_;
  SdpaPointers pointers_;
  void* workspace_ = nullptr;
};

class Library final : public DnnLibrary {
 public:
  explicit Library(cudaStream_t stream) : stream_(stream) {}

  Result<std::unique_ptr<SdpaPlan>> Prepare(const SdpaSpec& spec) override {
    GACCD_RETURN_IF_ERROR(Check(spec));
    const auto refused = [&](const char* why) {
      return Status(ErrorKind::kUnavailable, StrCat("cannot do the ", ToText(spec), ": ", why));
    };
    if (spec.width % 8 != 0 || spec.width > 128) {
      return refused("heads of up to 128 values, a multiple of 8");
    }
    if (spec.backward && spec.length == 1) return refused("at least 2 rows");
    GACCD_RETURN_IF_ERROR(CheckWorkspace(spec, WorkspaceBytes(spec)));
    const std::int64_t sums = spec.sequences * spec.length * spec.heads;
    GACCD_RETURN_IF_ERROR(
        TryRoom({6 * sums * spec.width, 6 * sums * spec.width, 4 * sums, WorkspaceBytes(spec)}));
    const std::lock_guard lock(TheSetup().mutex);
    if (spec.backward && TheSetup().options.refuses_backward) return refused("no engine");
    ++TheSetup().counters.plans;
    if (spec.deterministic) ++TheSetup().counters.deterministic;
    if (spec.dtype == DType::kFP16) ++TheSetup().counters.fp16;
    return std::unique_ptr<SdpaPlan>(std::make_unique<Plan>(spec, stream_));
  }
  Result<std::unique_ptr<ConvPlan>> Prepare(const ConvSpec& spec) override {
    GACCD_RETURN_IF_ERROR(Check(spec));
    const ConvSize& z = spec.size;
    GACCD_RETURN_IF_ERROR(
        TryRoom({2 * z.image_elements(), 2 * z.results() * z.out, 4 * z.out * z.columns()}));
    const std::lock_guard lock(TheSetup().mutex);
    if (TheSetup().options.refuses_convolutions) {
      return Status(ErrorKind::kUnavailable, StrCat("cannot do the ", ToText(spec), ": no engine"));
    }
    ++TheSetup().counters.convolutions;
    return MakeConvPlan(spec, stream_);
  }

 private:
  cudaStream_t stream_;
};

}  // namespace

Result<std::unique_ptr<DnnLibrary>> OpenDnn(const CudaContext& context) {
  const std::lock_guard lock(TheSetup().mutex);
  const std::string& why = TheSetup().options.does_not_start;
  if (!why.empty()) return Status(ErrorKind::kUnavailable, why);
  return std::unique_ptr<DnnLibrary>(std::make_unique<Library>(context.compute()));
}

void SetSdpa(const SdpaOptions& options) {
  const std::lock_guard lock(TheSetup().mutex);
  TheSetup().options = options;
  TheSetup().counters = {};
}

SdpaCounters CountSdpa() {
  const std::lock_guard lock(TheSetup().mutex);
  return TheSetup().counters;
}

}  // namespace gaccd::standin
