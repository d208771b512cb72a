// Manifest: describes one generation of a checkpoint: the run's cursor, its buffers, and the shard
// files with their sizes and digests. The manifest is written last: a generation without one does
// not exist.
//
// A sharded buffer is divided into units of 64 bytes; of U units rank r of W has
//   [floor(U r / W), floor(U (r + 1) / W)), the last unit may be shorter.
// A per-rank buffer (a partial update's accumulators) is stored completely in the shard of every
// rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/hash.h"
#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/job.h"
#include "daemon/config/revision.h"
#include "daemon/engine/sample_audit.h"
#include "daemon/plan/plan.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

inline constexpr std::string_view kManifestName = "MANIFEST";
inline constexpr std::string_view kParametersBuffer = "parameters";  // the first buffer, sharded
inline constexpr std::size_t kMaxManifestBytes = std::size_t{16} << 20;
inline constexpr std::int64_t kMaxWorld = 65'536;
inline constexpr std::size_t kMaxBuffers = 16;
inline constexpr std::uint64_t kMaxBufferBytes = std::uint64_t{1} << 50;
inline constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kUnitBytes = 64;  // ranges of shards begin at multiples

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
// The part of a buffer in shard `rank` of `world`.
[[nodiscard]] ByteRange PartRange(const BufferSpec& buffer, std::int64_t rank, std::int64_t world);
// Sum over all buffers.
[[nodiscard]] std::uint64_t PayloadBytes(std::span<const BufferSpec> buffers, std::int64_t rank,
                                         std::int64_t world);

// The evaluations of a run so far, by the job's evaluation.metric.
struct BestSoFar {
  std::int64_t evaluated = 0;  // updates before the last evaluation; 0: none
  std::int64_t step = 0;       // updates before the best evaluation; 0: none had a finite value
  double value = 0;            // of the best evaluation
  // value of the last evaluation that improved by evaluation.least_change
  double reference = 0;
  std::int64_t waited = 0;  // evaluations since then

  friend bool operator==(const BestSoFar&, const BestSoFar&) = default;
};

// The loss scale of fp16 training (daemon/train/nonfinite_handler.h).
struct LossScaleState {
  double scale = 1;                 // for the next update
  std::int64_t growth_tracker = 0;  // updates since it changed, or since the last overflow

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};

// Digests of a few samples of both data sets. 0: no such set, or saved by a gaccd without them.
struct DataContent {
  std::uint64_t train = 0;
  std::uint64_t eval = 0;

  friend bool operator==(const DataContent&, const DataContent&) = default;
};

// The position of a run: between two updates or, if micro_step > 0, inside one.
struct RunCursor {
  std::int64_t step = 0;        // updates done = index of the next one in the schedule
  std::int64_t samples = 0;     // samples of these updates
  std::int64_t micro_step = 0;  // micro-steps of the next update that are in the accumulators
  bool by_length = false;       // samples were grouped by length
  std::int64_t optimizer_updates = 0;
  std::uint64_t seed = 0;            // all random draws are functions of (seed, position)
  std::int64_t dataset_samples = 0;  // with seed, batch and step determines the next samples
  DataContent content = {};
  BestSoFar best = {};
  std::optional<LossScaleState> loss_scale = std::nullopt;  // set for fp16

  friend bool operator==(const RunCursor&, const RunCursor&) = default;
};

struct ShardRecord {
  std::uint64_t bytes = 0;  // size of the file
  Sha256Digest sha256{};
  PartialUpdate partial;

  friend bool operator==(const ShardRecord&, const ShardRecord&) = default;
};

struct ParameterRecord {  // an entry of the f32 buffer "parameters"
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
  std::int64_t created_s = 0;  // Unix time, for users
  std::string program;         // version and revision of gaccd
  std::string job_text;        // resolved
  std::optional<Plan> plan;    // always set in a decoded manifest
  std::string hosts;           // HostsText() of its ranks; empty: saved by an older gaccd
  std::uint64_t block_bytes = 0;
  std::vector<ParameterRecord> parameters;
  std::vector<BufferSpec> buffers;
  std::vector<ShardRecord> shards;  // by rank
  bool has_divisors = true;  // false: saved by an older gaccd, whose partial updates had none

  [[nodiscard]] std::int64_t world() const { return static_cast<std::int64_t>(shards.size()); }
};

// The hosts of the ranks, by rank: "8xn1,8xn2".
[[nodiscard]] std::string HostsText(std::span<const std::string> host_of);

// File format: "GACCDMF1", u32 length, a proto::CheckpointManifest of that length, u32 CRC32C of
// everything before; little endian.
[[nodiscard]] std::string EncodeManifest(const Manifest& manifest);
// Checks everything that can be checked without the shards. kData with the prefix `name`.
[[nodiscard]] Result<Manifest> DecodeManifest(const std::string& name, std::string_view file);

// What a decoded manifest must fulfil before its files are read. kData, with the expected and the
// found value.
Status CheckManifest(const Manifest& manifest);

// Checks that the content of a checkpoint is consistent: its counters match its job and plan, and
// its parameters are finite. Errors are kData: the checkpoint is damaged; or kConfig: its job is
// not one of this version.

// Interprets loaded bytes of an f32 buffer.
[[nodiscard]] inline std::span<const float> AsFloats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

// The job of the saved run.
[[nodiscard]] Result<Job> SavedJob(const Manifest& manifest);

// The same, after checking that this job can reach the cursor: it is not past its end, has at most
// the samples of its updates (non-finite updates or micro-batches may have been skipped), and the
// samples that each rank had processed in a partial update.
[[nodiscard]] Result<Job> CheckedJob(const Manifest& manifest);

// values: the elements of the buffer "parameters" from `first` on. The error names the parameter
// and the index of the first value that is NaN or infinite.
[[nodiscard]] Status CheckParametersFinite(const Manifest& manifest, std::span<const float> values,
                                           std::int64_t first = 0);

// The errors of all readers of checkpoint files.

// kData: the content of a checkpoint is invalid or was changed.
inline Status BadData(std::string what) { return {ErrorKind::kData, std::move(what)}; }

// kConfig: intact, but not readable by this version. Not kData, after which an older checkpoint
// would be used, and the newer one removed.
inline Status OtherVersion(std::string_view written_by, std::string_view what) {
  return {ErrorKind::kConfig,
          StrCat("the checkpoint was written by ", written_by, ", and gaccd ", GaccdVersion(), " ",
                 GaccdRevision(), " cannot read it: use the version that wrote it (", what, ")")};
}

}  // namespace gaccd
