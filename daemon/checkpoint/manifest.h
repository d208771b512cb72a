// Manifest: what one generation of a checkpoint is: the run's cursor, its buffers, and the shard
// files that hold them, with their sizes and digests. A generation without a manifest does not
// exist: the manifest is written last.
//
// A sharded buffer is cut into units of 64 bytes; of U units rank r of W holds
//   [floor(U r / W), floor(U (r + 1) / W)), the last unit may be short.
// A per-rank buffer (a window's accumulators) is stored whole in the shard of every rank.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/sha256.h"
#include "daemon/engine/sample_ledger.h"
#include "daemon/plan/plan.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

inline constexpr std::string_view kManifestName = "MANIFEST";
inline constexpr std::string_view kParametersBuffer = "parameters";  // the first one, sharded
inline constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;
inline constexpr std::int64_t kMaxWorld = 65'536;
inline constexpr std::size_t kMaxBuffers = 16;
inline constexpr std::uint64_t kMaxBufferBytes = std::uint64_t{1} << 50;
inline constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{64} << 20;

struct BufferSpec {
  std::string name;
  std::uint64_t bytes = 0;
  bool per_rank = false;

  friend bool operator==(const BufferSpec&, const BufferSpec&) = default;
};

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
// What shard `rank` of `world` holds of a buffer.
[[nodiscard]] ByteRange PartOf(const BufferSpec& buffer, std::int64_t rank, std::int64_t world);
// The sum over all buffers.
[[nodiscard]] std::uint64_t PayloadBytes(std::span<const BufferSpec> buffers, std::int64_t rank,
                                         std::int64_t world);

// The evaluations of a run so far, by the job's evaluation.metric.
struct BestSoFar {
  std::int64_t evaluated = 0;  // updates before the last one; 0: there was none
  std::int64_t step = 0;       // updates before the best one; 0: none had a finite value
  double value = 0;            // of the best one
  double reference = 0;        // of the last one that was better by evaluation.least_change
  std::int64_t waited = 0;     // evaluations since that one

  friend bool operator==(const BestSoFar&, const BestSoFar&) = default;
};

// The loss scale of a training in fp16 (daemon/train/loss_scale.h).
struct LossScaleState {
  double scale = 1;                 // of the next update
  std::int64_t growth_tracker = 0;  // updates since it changed, or since the last that overflowed

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

// Digests of a few samples of both data sets. 0: of a gaccd that did not save them, or no such set.
struct DataContent {
  std::uint64_t train = 0;
  std::uint64_t eval = 0;

  friend bool operator==(const DataContent&, const DataContent&) = default;
};

// The position of a run, between two updates or, with micro_step > 0, inside one.
struct RunCursor {
  std::int64_t step = 0;        // updates done = index of the next one in the schedule
  std::int64_t samples = 0;     // that they took
  std::int64_t micro_step = 0;  // of the next update, micro-steps that are in the accumulators
  bool by_length = false;       // their samples were grouped by length
  std::int64_t optimizer_updates = 0;
  std::uint64_t seed = 0;  // the only random counter: all draws are functions of (seed, position)
  std::int64_t dataset_samples = 0;  // with seed, batch and step: which samples come next
  DataContent content = {};
  BestSoFar best = {};
  std::optional<LossScaleState> loss_scale = std::nullopt;  // of fp16

  friend bool operator==(const RunCursor&, const RunCursor&) = default;
};

struct ShardRecord {
  std::uint64_t bytes = 0;  // of the file
  Sha256Digest sha256{};
  WindowShare window;

  friend bool operator==(const ShardRecord&, const ShardRecord&) = default;
};

struct ParameterRecord {  // of the buffer "parameters", f32
  std::string name;
  Shape shape;
  std::int64_t offset = 0;  // elements
  OptimizerGroup group = {};
  bool frozen = false;

  friend bool operator==(const ParameterRecord&, const ParameterRecord&) = default;
};

struct Manifest {
  RunCursor cursor;
  std::int64_t writer_epoch = 0;
  std::int64_t created_s = 0;  // Unix time, for people
  std::string program;         // version and revision of gaccd
  std::string job_text;        // resolved
  std::optional<Plan> plan;    // always there in a manifest that was decoded
  std::string hosts;           // HostsText() of its ranks; empty: of a gaccd that did not save them
  std::uint64_t block_bytes = 0;
  std::vector<ParameterRecord> parameters;
  std::vector<BufferSpec> buffers;
  std::vector<ShardRecord> shards;  // by rank
  bool has_divisors = true;         // false: of a gaccd whose windows had none

  [[nodiscard]] std::int64_t world() const { return static_cast<std::int64_t>(shards.size()); }
};

// The hosts of the ranks, by rank: "8xn1,8xn2".
[[nodiscard]] std::string HostsText(std::span<const std::string> host_of);

// The file: "GACCDMF1", u32 length, a proto::CheckpointManifest of that length, u32 CRC32C of all
// before; little endian.
[[nodiscard]] std::string EncodeManifest(const Manifest& manifest);
// Checks everything that can be checked without the shards. kData with `name` in front.
[[nodiscard]] Result<Manifest> DecodeManifest(const std::string& name, std::string_view file);

}  // namespace gaccd
