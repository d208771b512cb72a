// A pass of the radix sort has three kernels: count the digits of every tile, sum the counts over
// earlier tiles, move the rows. Ranks within a tile are computed by warp votes without atomics, so
// their order is fixed.
#include <bit>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/layout/sort_ids_cuda.h"

namespace gaccd {
namespace {

constexpr unsigned kBits = 8;
constexpr unsigned kDigits = 1U << kBits;
static_assert(kDigits == kThreads);  // in several places a thread processes one digit
constexpr unsigned kRounds = 4;      // rows per thread
constexpr std::int64_t kTile = kThreads * kRounds;
constexpr std::int64_t kMaxCount = (std::int64_t{1} << 31) - 1;

// Input of a pass: the ids in their order, or the output of the previous pass.
struct Source {
  const std::int32_t* ids;  // null: sorted
  const IdRow* sorted;
  std::int64_t count;
  std::uint32_t end;

  // Positions beyond the last row sort after everything in the last tile and are not moved.
  __device__ IdRow At(std::int64_t n) const {
    if (n >= count) return ~IdRow{0};
    if (ids == nullptr) return sorted[n];
    const auto id = static_cast<std::uint32_t>(ids[n]);  // negative ids are large
    return static_cast<IdRow>(id < end ? id : end) << 32 | static_cast<IdRow>(n);
  }
};

__device__ inline unsigned RadixDigit(IdRow row, unsigned shift) {
  return static_cast<unsigned>(row >> shift) % kDigits;
}

// The lanes with the same digit.
__device__ inline unsigned Peers(unsigned digit) {
  unsigned peers = kAllLanes;
#pragma unroll
  for (unsigned bit = 1; bit < kDigits; bit *= 2) {
    const unsigned with_bit = __ballot_sync(kAllLanes, (digit & bit) != 0 ? 1 : 0);
    peers &= (digit & bit) != 0 ? with_bit : ~with_bit;
  }
  return peers;
}

// Inclusive sum over the lanes up to this one.
__device__ inline unsigned WarpScan(unsigned value) {
  const unsigned lane = threadIdx.x % kWarp;
#pragma unroll
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const unsigned before = __shfl_sync(kAllLanes, value, static_cast<int>(lane - step));
    if (lane >= step) value += before;
  }
  return value;
}

// A warp processes consecutive rows, 32 per round.
struct TileRows {
  IdRow row[kRounds];
  unsigned rank[kRounds];  // number of earlier rows of its warp with this digit
};
__device__ inline std::int64_t PlaceInRound(unsigned round) {
  const unsigned warp = threadIdx.x / kWarp;
  return blockIdx.x * kTile + (warp * kRounds + round) * kWarp + threadIdx.x % kWarp;
}

// counts: digits of each warp.
__device__ inline TileRows RankTile(const Source& from, unsigned shift,
                                    unsigned (*counts)[kDigits]) {
  for (unsigned w = 0; w < kWarps; ++w) counts[w][threadIdx.x] = 0;
  TileRows tile;
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) tile.row[round] = from.At(PlaceInRound(round));
  unsigned* of_warp = counts[threadIdx.x / kWarp];
  const unsigned lanes_before = (1U << threadIdx.x % kWarp) - 1;
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    const unsigned digit = RadixDigit(tile.row[round], shift);
    const unsigned peers = Peers(digit);
    const auto before = static_cast<unsigned>(std::popcount(peers & lanes_before));
    __syncthreads();
    const unsigned in_rounds = of_warp[digit];
    tile.rank[round] = in_rounds + before;
    __syncthreads();
    if (before == 0) of_warp[digit] = in_rounds + static_cast<unsigned>(std::popcount(peers));
  }
  __syncthreads();
  return tile;
}

// counts_of_tiles: [kDigits, tiles].
__global__ void __launch_bounds__(kThreads)
    CountDigitsKernel(Source from, unsigned shift, unsigned* counts_of_tiles) {
  __shared__ unsigned counts[kWarps][kDigits];
  RankTile(from, shift, counts);
  unsigned count = 0;
  for (unsigned w = 0; w < kWarps; ++w) count += counts[w][threadIdx.x];
  counts_of_tiles[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x] = count;
}

// One warp per digit: its counts become the sums of the counts of earlier tiles.
__global__ void __launch_bounds__(kThreads)
    SumTilesKernel(unsigned* counts_of_tiles, std::int64_t tiles, unsigned* totals) {
  const unsigned digit = blockIdx.x * kWarps + threadIdx.x / kWarp;
  unsigned* counts = counts_of_tiles + digit * tiles;
  unsigned before = 0;
  for (std::int64_t first = 0; first < tiles; first += kWarp) {
    const std::int64_t tile = first + threadIdx.x % kWarp;
    const unsigned count = tile < tiles ? counts[tile] : 0;
    const unsigned sum = WarpScan(count);
    if (tile < tiles) counts[tile] = before + sum - count;
    before += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }
  if (threadIdx.x % kWarp == 0) totals[digit] = before;
}

__global__ void __launch_bounds__(kThreads)
    MoveRowsKernel(Source from, unsigned shift, const unsigned* before_tiles,
                   const unsigned* totals, IdRow* to) {
  __shared__ unsigned places[kWarps][kDigits];  // counts first, then destinations
  __shared__ unsigned of_warps[kWarps];
  const TileRows tile = RankTile(from, shift, places);
  const unsigned total = totals[threadIdx.x];
  const unsigned sum = WarpScan(total);
  if (threadIdx.x % kWarp == kWarp - 1) of_warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  unsigned place = before_tiles[static_cast<std::int64_t>(threadIdx.x) * gridDim.x + blockIdx.x];
  place += sum - total;  // the smaller digits
  for (unsigned w = 0; w < threadIdx.x / kWarp; ++w) place += of_warps[w];
  for (unsigned w = 0; w < kWarps; ++w) {
    const unsigned count = places[w][threadIdx.x];
    places[w][threadIdx.x] = place;
    place += count;
  }
  __syncthreads();
#pragma unroll
  for (unsigned round = 0; round < kRounds; ++round) {
    if (PlaceInRound(round) >= from.count) continue;
    const unsigned digit = RadixDigit(tile.row[round], shift);
    to[places[threadIdx.x / kWarp][digit] + tile.rank[round]] = tile.row[round];
  }
}

}  // namespace

std::size_t SortIdsScratchBytes(std::int64_t count) {
  const std::size_t counts = kDigits * (BlocksFor(count, kTile) + std::size_t{1});
  return 2 * static_cast<std::size_t>(count) * sizeof(IdRow) + counts * sizeof(unsigned);
}

Status EnqueueSortIds(const KernelStream& on, const std::int32_t* ids, std::int64_t count,
                      std::int64_t rows, void* scratch, const IdRow** sorted) {
  constexpr const char* kWhat = "sort_ids";
  if (count > kMaxCount) {
    return {ErrorKind::kConfig,
            StrCat(kWhat, ": expected at most ", kMaxCount, " ids, found ", count)};
  }
  const std::uint32_t end = OutOfRangeId(rows);
  const unsigned tiles = BlocksFor(count, kTile);
  auto* const first = static_cast<IdRow*>(scratch);
  auto* const counts = reinterpret_cast<unsigned*>(first + 2 * count);
  unsigned* const totals = counts + std::size_t{kDigits} * tiles;
  Source from{ids, nullptr, count, end};
  const auto bits = static_cast<unsigned>(std::bit_width(std::max(end, 1U)));
  for (unsigned bit = 0; bit < bits; bit += kBits) {
    IdRow* const to = from.sorted == first ? first + count : first;
    GACCD_RETURN_IF_ERROR(
        Launch(CountDigitsKernel, {tiles, kThreads}, on.stream, kWhat, from, 32 + bit, counts));
    GACCD_RETURN_IF_ERROR(Launch(SumTilesKernel, {kDigits / kWarps, kThreads}, on.stream, kWhat,
                                 counts, static_cast<std::int64_t>(tiles), totals));
    GACCD_RETURN_IF_ERROR(Launch(MoveRowsKernel, {tiles, kThreads}, on.stream, kWhat, from,
                                 32 + bit, counts, totals, to));
    from = {nullptr, to, count, end};
  }
  *sorted = from.sorted;
  return Status::Ok();
}

}  // namespace gaccd
