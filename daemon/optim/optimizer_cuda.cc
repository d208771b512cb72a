#include "daemon/optim/optimizer_cuda.h"

#include <algorithm>
#include <cstring>

#include "collectives/base/strings.h"
#include "daemon/optim/rules.h"

namespace gaccd {
namespace {

Status CheckAligned(const void* memory, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(memory) % 16 == 0) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("optimizer: ", what, ": expected an address that is a multiple of 16, found ",
                 memory)};
}

// Whether the kernel needs no table of tiles.
bool IsWhole(const OptimizerRanges& ranges, std::int64_t elements) {
  return ranges.all().size() == 1 && ranges.elements() == elements;
}

std::int64_t TileCount(const OptimizerRange& range) {
  return (range.elements + kStepTileElements - 1) / kStepTileElements;
}

}  // namespace

std::int64_t CudaOptimizer::TableBytes(const OptimizerRanges& ranges, std::int64_t elements) {
  if (IsWhole(ranges, elements)) return 0;
  std::int64_t tiles = 0;
  for (const OptimizerRange& range : ranges.all()) tiles += TileCount(range);
  return tiles * static_cast<std::int64_t>(sizeof(StepTile));
}

Result<std::unique_ptr<CudaOptimizer>> CudaOptimizer::Create(const OptimizerSpec& spec,
                                                             const OptimizerRanges& ranges,
                                                             const Buffers& buffers) {
  GACCD_RETURN_IF_ERROR(CheckOptimizer(spec, ranges));
  const std::int64_t state = StateElements(spec, ranges.elements());
  if (buffers.state == nullptr && state > 0) {
    return Status(ErrorKind::kInternal,
                  StrCat("optimizer: expected ", state, " values of state, found no memory"));
  }
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.parameters, "parameters"));
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.gradient, "gradient"));
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.state, "state"));
  GACCD_RETURN_IF_ERROR(CheckAligned(buffers.copy, "copy of parameters"));
  if (state > ranges.elements()) {
    GACCD_RETURN_IF_ERROR(
        CheckAligned(buffers.state + ranges.elements(), "second and later values of the state"));
  }
  std::unique_ptr<CudaOptimizer> optimizer(new CudaOptimizer(spec, buffers, ranges.elements()));
  GACCD_RETURN_IF_ERROR(optimizer->MakeTiles(ranges));
  return optimizer;
}

Status CudaOptimizer::MakeTiles(const OptimizerRanges& ranges) {
  std::vector<StepTile> tiles;
  for (const OptimizerRange& range : ranges.all()) {
    const auto group = std::ranges::find(groups_, range.group) - groups_.begin();
    if (group == std::ssize(groups_)) groups_.push_back(range.group);
    for (std::int64_t done = 0; done < range.elements; done += kStepTileElements) {
      tiles.push_back(
          {.first = range.first + done,
           .state = range.state_first + done,
           .count = static_cast<std::int32_t>(std::min(kStepTileElements, range.elements - done)),
           .group = static_cast<std::int32_t>(group)});
    }
  }
  if (std::ssize(groups_) > kMaxOptimizerGroups) {
    return {ErrorKind::kConfig, StrCat("optimizer: expected at most ", kMaxOptimizerGroups,
                                       " different groups, found ", groups_.size())};
  }
  if (IsWhole(ranges, buffers_.elements) || tiles.empty()) return Status::Ok();
  const std::size_t bytes = tiles.size() * sizeof(StepTile);
  GACCD_ASSIGN_OR_RETURN(tiles_, DeviceBuffer::Allocate(bytes, "optimiser groups"));
  tile_count_ = std::ssize(tiles);
  return CudaStatus(cudaMemcpy(tiles_.data(), tiles.data(), bytes, cudaMemcpyHostToDevice),
                    "optimiser groups");
}

void CudaOptimizer::Prepare(double lr, UpdateInputs* inputs) {
  ++updates_;
  if (spec_.ema) inputs->average_rate = AverageRate(*spec_.ema, updates_);
  WithRule(spec_, [&](auto rule, const auto& settings) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto factors = rule.MakeFactors(settings, groups_[i], lr, updates_);
      static_assert(sizeof factors <= sizeof(GroupFactors));
      std::memcpy(&inputs->factors[i], &factors, sizeof factors);
    }
  });
}

Status CudaOptimizer::Step(cudaStream_t stream, UpdateControl* control) {
  if (trainable_ == 0) return Status::Ok();
  return EnqueueStep(stream, spec_, buffers_, tiles(), trainable_, control);
}

StepTiles CudaOptimizer::tiles() const { return {tiles_.as<StepTile>(), tile_count_}; }

float* CudaOptimizer::averages() const {
  return buffers_.state + StateElements(spec_, trainable_) - trainable_;
}

Status CudaOptimizer::Average(cudaStream_t stream, const UpdateControl* control) {
  if (!spec_.ema || trainable_ == 0) return Status::Ok();
  return EnqueueAverage(stream, buffers_, averages(), tiles(), control);
}

Status CudaOptimizer::ExchangeAverages(cudaStream_t stream) {
  if (!spec_.ema || trainable_ == 0 || updates_ == 0) return Status::Ok();
  return EnqueueExchange(stream, buffers_, averages(), tiles());
}

}  // namespace gaccd
