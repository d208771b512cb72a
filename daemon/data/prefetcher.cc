#include "daemon/data/prefetcher.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/base/thread.h"

namespace gaccd {
namespace {

constexpr std::size_t kAlignment = 64;

// Adds samples * bytes_of_one, rounded up to the alignment, to `total`. False on overflow.
bool AddPart(std::int64_t samples, std::int64_t bytes_of_one, std::size_t& total) {
  std::size_t part = 0;
  return !__builtin_mul_overflow(samples, bytes_of_one, &part) &&
         !__builtin_add_overflow(part, kAlignment - 1, &part) &&
         !__builtin_add_overflow(part / kAlignment * kAlignment, total, &total);
}

// Offsets of every tensor, of the ids, and of the end. nullopt: does not fit the address space.
std::optional<std::vector<std::size_t>> OffsetsInSlot(const SampleSpec& spec,
                                                      std::int64_t samples) {
  std::size_t end = 0;
  std::vector<std::size_t> offsets = {end};
  const auto add = [&](std::int64_t bytes_of_one) {
    const bool fits = AddPart(samples, bytes_of_one, end);
    offsets.push_back(end);
    return fits;
  };
  for (const TensorSpec& tensor : spec.tensors) {
    if (!add(tensor.bytes())) return std::nullopt;
  }
  if (!add(sizeof(std::int64_t))) return std::nullopt;
  return offsets;
}

}  // namespace

std::optional<std::size_t> Prefetcher::RingBytes(const SampleSpec& spec, std::int64_t samples,
                                                 int slots) {
  std::size_t bytes = 0;
  const auto offsets = OffsetsInSlot(spec, samples);
  if (!offsets || __builtin_mul_overflow(offsets->back(), slots, &bytes)) return std::nullopt;
  return std::max(bytes, kAlignment);  // not 0 for a rank without samples
}

void Prefetcher::FreeAligned::operator()(std::byte* memory) const { std::free(memory); }

Prefetcher::Prefetcher(const Dataset& dataset, std::unique_ptr<IndexSource> source)
    : dataset_(dataset), source_(std::move(source)) {}

Result<std::unique_ptr<Prefetcher>> Prefetcher::Start(const Dataset& dataset,
                                                      std::unique_ptr<IndexSource> source,
                                                      const PrefetcherOptions& options) {
  // With a power of two, slot indices remain correct when the counters wrap around.
  if (options.held < 0 || options.slots - 2 < options.held ||
      !std::has_single_bit(static_cast<unsigned>(options.slots))) {
    return Status(ErrorKind::kConfig, StrCat("prefetch slots: expected a power of two from ",
                                             std::max(options.held, 0) + 2, " on with ",
                                             options.held, " held, found ", options.slots));
  }
  std::unique_ptr<Prefetcher> prefetcher(new Prefetcher(dataset, std::move(source)));
  prefetcher->cuts_ = options.cuts;
  GACCD_RETURN_IF_ERROR(prefetcher->Allocate(options));
  GACCD_ASSIGN_OR_RETURN(
      prefetcher->thread_,
      StartThread("the prefetch thread", [self = prefetcher.get()] { self->Run(); }));
  return prefetcher;
}

Status Prefetcher::Allocate(const PrefetcherOptions& options) {
  const int slots = options.slots;
  held_ = static_cast<std::uint32_t>(options.held);
  low_ = held_ + (static_cast<std::uint32_t>(slots) - held_) / 2;
  const SampleSpec& spec = dataset_.spec();
  const std::int64_t samples = source_->max_samples();
  const auto bytes = RingBytes(spec, samples, slots);
  if (!bytes) {
    return {ErrorKind::kConfig,
            StrCat("a ring of ", slots, " micro-batches of ", samples, " samples of ",
                   Describe(spec), " does not fit the address space")};
  }
  bytes_ = *bytes;
  const std::vector<std::size_t> offsets = *OffsetsInSlot(spec, samples);
  const std::size_t slot_bytes = offsets.back();
  std::byte* at = nullptr;
  if (options.memory) {
    GACCD_ASSIGN_OR_RETURN(at, options.memory(bytes_));
  }
  if (at == nullptr) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes_)));
    at = memory_.get();
  }
  if (at == nullptr) {
    return NoMemory("the prefetch ring", bytes_);
  }
  slots_.resize(static_cast<std::size_t>(slots));
  for (Slot& slot : slots_) {
    for (std::size_t t = 0; t < spec.tensors.size(); ++t) slot.tensors.push_back(at + offsets[t]);
    slot.ids = {reinterpret_cast<std::int64_t*>(at + offsets[spec.tensors.size()]),
                static_cast<std::size_t>(samples)};
    slot.view = {.samples = 0, .tensors = slot.tensors, .ids = slot.ids.data()};
    at += slot_bytes;
  }
  return Status::Ok();
}

Prefetcher::~Prefetcher() {
  stop_.store(true);
  // As if all slots were free: ends any wait of the thread.
  taken_.fetch_add(static_cast<std::uint32_t>(slots_.size()));
  taken_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// If no slot is free, sleeps until half of the slots not held are. Only the call of Next() that
// frees the last slot of that half wakes the thread, so other calls need no system call.
bool Prefetcher::WaitForFreeSlots(std::uint32_t filled) {
  const auto slots = static_cast<std::uint32_t>(slots_.size());
  std::uint32_t taken = taken_.load();
  if (filled - taken == slots) {
    while (filled - taken > low_ && !stop_.load()) {
      taken_.wait(taken);
      taken = taken_.load();
    }
  }
  return !stop_.load();
}

std::int64_t Prefetcher::CutFor(std::span<const std::int64_t> samples) const {
  if (cuts_.empty()) return 0;
  std::int64_t longest = 0;
  for (const std::int64_t id : samples) longest = std::max(longest, dataset_.Length(id));
  const auto cut = std::ranges::lower_bound(cuts_, longest);
  return cut == cuts_.end() ? 0 : *cut;
}

void Prefetcher::Run() {
  std::int64_t samples = 0;
  for (std::uint32_t filled = 0; samples != IndexSource::kEnd && WaitForFreeSlots(filled);) {
    Slot& slot = slots_[filled % slots_.size()];
    samples = source_->Next(slot.ids);
    slot.view.samples = samples;
    slot.view.length = 0;
    if (samples > 0) {
      const auto ids = slot.ids.first(static_cast<std::size_t>(samples));
      slot.view.length = CutFor(ids);
      slot.view.augmentation_seed = source_->augmentation_seed();
      slot.view.position = source_->position();
      slot.view.run = source_->run_position();
      try {
        dataset_.Gather(ids, slot.view);
      } catch (const std::bad_alloc&) {  // in a thread, it would end the process
        lacks_memory_.store(true);
      }
    }
    filled_.store(++filled);
    filled_.notify_one();  // no system call unless Next() waits
  }
}

Status Prefetcher::status() const {
  if (!lacks_memory_.load()) return dataset_.ReadError();
  return NoMemory("the samples of a micro-batch",
                  static_cast<std::uint64_t>(dataset_.gather_bytes(source_->max_samples())));
}

const BatchView* Prefetcher::Next() {
  if (ended_) return nullptr;
  std::uint32_t taken = taken_.load(std::memory_order_relaxed);
  if (next_ - taken > held_) {
    taken_.store(++taken);
    const std::uint32_t left = filled_.load() - taken;
    if (left == low_) taken_.notify_one();
  }
  std::uint32_t filled = filled_.load();
  while (filled == next_) {
    filled_.wait(filled);
    filled = filled_.load();
  }
  const BatchView& view = slots_[next_ % slots_.size()].view;
  ++next_;
  ended_ = view.samples == IndexSource::kEnd;
  return ended_ ? nullptr : &view;
}

}  // namespace gaccd
