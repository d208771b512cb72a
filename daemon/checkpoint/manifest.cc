#include "daemon/checkpoint/manifest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "daemon/checkpoint/crc32c.h"
#include "daemon/config/plan_proto.h"
#include "daemon/plan/speeds.h"
#include "proto/checkpoint.pb.h"

namespace gaccd {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little endian");

constexpr std::string_view kMagic = "GACCDMF1";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeadBytes = 12;  // magic, length
constexpr std::size_t kCrcBytes = 4;
constexpr std::size_t kMaxParameters = 65'536;
constexpr int kMaxDepth = 8;

std::uint32_t LoadU32(const char* bytes) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

void AppendU32(std::uint32_t value, std::string* text) {
  text->append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint32_t ComputeCrc(std::string_view text) { return Crc32c(std::as_bytes(std::span(text))); }

// An empty entry of a list takes 2 bytes in the file and a hundred in memory: counted before it is
// parsed.
Status CheckFieldCount(const std::uint8_t* message, std::size_t length) {
  constexpr std::size_t kMaxFields = kMaxParameters + kMaxWorld + kMaxBuffers + 64;
  google::protobuf::io::CodedInputStream in(message, static_cast<int>(length));
  std::size_t fields = 0;
  while (const std::uint32_t tag = in.ReadTag()) {
    if (++fields > kMaxFields) return BadData(StrCat("expected at most ", kMaxFields, " fields"));
    // parsing reports the error
    if (!google::protobuf::internal::WireFormatLite::SkipField(&in, tag)) break;
  }
  return Status::Ok();
}

// The message inside the frame.
Result<proto::CheckpointManifest> Unframe(std::string_view file) {
  if (file.size() < kHeadBytes + kCrcBytes || file.size() > kMaxManifestBytes) {
    return BadData(StrCat("expected ", kHeadBytes + kCrcBytes, " to ", kMaxManifestBytes,
                          " bytes, found ", file.size()));
  }
  if (!file.starts_with(kMagic)) return BadData("it does not begin with GACCDMF1");
  const std::size_t length = LoadU32(file.data() + kMagic.size());
  if (length != file.size() - kHeadBytes - kCrcBytes) {
    return BadData(StrCat("expected a message of ", length, " bytes, found ",
                          file.size() - kHeadBytes - kCrcBytes));
  }
  const std::size_t end = file.size() - kCrcBytes;
  if (LoadU32(file.data() + end) != ComputeCrc(file.substr(0, end))) {
    return BadData("its CRC32C does not match its bytes");
  }
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  GACCD_RETURN_IF_ERROR(CheckFieldCount(bytes + kHeadBytes, length));
  google::protobuf::io::CodedInputStream in(bytes + kHeadBytes, static_cast<int>(length));
  in.SetRecursionLimit(kMaxDepth);
  proto::CheckpointManifest message;
  if (!message.ParseFromCodedStream(&in) || !in.ConsumedEntireMessage()) {
    return BadData("it is not a message of proto/checkpoint.proto");
  }
  return message;
}

Result<Plan> PlanFromProto(const proto::Plan& message) {
  PlanRequest request{.nodes = message.nodes(),
                      .gpus_per_node = message.gpus_per_node(),
                      .micro_batch = message.micro_batch(),
                      .target_batch = message.target_batch(),
                      .stages = message.has_stages() ? message.stages() : 1};
  const Rounding modes[] = {Rounding::kExact, Rounding::kFloor, Rounding::kCeil,
                            Rounding::kNearest};
  const auto* mode = std::find_if(std::begin(modes), std::end(modes),
                                  [&](Rounding one) { return Name(one) == message.mode(); });
  if (mode == std::end(modes)) {
    return BadData(
        StrCat("plan: expected exact, floor, ceil or nearest, found '", message.mode(), "'"));
  }
  request.rounding = *mode;
  if (message.has_speeds()) {
    auto speeds = ParseSpeeds(message.speeds(), std::min<std::int64_t>(message.world(), kMaxWorld));
    if (!speeds.ok()) return BadData(StrCat("plan: ", speeds.status().message()));
    request.speeds = *std::move(speeds);
  }
  if (message.bits() == Name(Bits::kAnySplit)) request.bits = Bits::kAnySplit;
  auto plan = Plan::Make(request);
  if (!plan.ok()) return BadData(StrCat("plan: ", plan.status().message()));
  if (plan->effective_batch() != message.effective_batch() || plan->world() != message.world()) {
    return BadData(StrCat("plan: expected an effective batch of ", plan->effective_batch(), " on ",
                          plan->world(), " ranks, found ", message.effective_batch(), " on ",
                          message.world()));
  }
  return plan;
}

void FillManifestProto(const Manifest& manifest, proto::CheckpointManifest& message) {
  message.set_version(kVersion);
  message.set_program(manifest.program);
  message.set_created_s(manifest.created_s);
  message.set_writer_epoch(manifest.writer_epoch);
  message.set_step(manifest.cursor.step);
  message.set_samples(manifest.cursor.samples);
  message.set_micro_step(manifest.cursor.micro_step);
  message.set_by_length(manifest.cursor.by_length);
  message.set_optimizer_updates(manifest.cursor.optimizer_updates);
  message.set_seed(manifest.cursor.seed);
  message.set_dataset_samples(manifest.cursor.dataset_samples);
  message.set_train_content(manifest.cursor.content.train);
  message.set_eval_content(manifest.cursor.content.eval);
  if (const BestSoFar& best = manifest.cursor.best; best.evaluated > 0) {
    message.set_evaluated_step(best.evaluated);
    message.set_best_step(best.step);
    message.set_best_value(best.value);
    message.set_best_reference(best.reference);
    message.set_best_waited(best.waited);
  }
  if (const auto& loss_scale = manifest.cursor.loss_scale) {
    message.set_loss_scale(loss_scale->scale);
    message.set_growth_tracker(loss_scale->growth_tracker);
  }
  message.set_job(manifest.job_text);
  if (manifest.plan) FillPlanProto(*manifest.plan, *message.mutable_plan());
  if (!manifest.hosts.empty()) message.set_hosts(manifest.hosts);
  message.set_block_bytes(manifest.block_bytes);
  for (const ParameterRecord& parameter : manifest.parameters) {
    proto::CheckpointParameter& one = *message.add_parameter();
    one.set_name(parameter.name);
    for (const std::int64_t size : parameter.shape) one.add_shape(size);
    one.set_offset(parameter.offset);
    if (parameter.group.weight_decay) one.set_weight_decay(*parameter.group.weight_decay);
    if (parameter.group.lr_factor != 1) one.set_lr_factor(parameter.group.lr_factor);
    if (parameter.frozen) one.set_frozen(true);
  }
  for (const BufferSpec& buffer : manifest.buffers) {
    proto::CheckpointBuffer& one = *message.add_buffer();
    one.set_name(buffer.name);
    one.set_bytes(buffer.bytes);
    one.set_per_rank(buffer.per_rank);
  }
  for (const ShardRecord& shard : manifest.shards) {
    proto::CheckpointShard& one = *message.add_shard();
    one.set_bytes(shard.bytes);
    one.set_sha256(shard.sha256.data(), shard.sha256.size());
    one.set_partial_samples(shard.partial.samples);
    one.set_partial_loss_sum(shard.partial.loss_sum);
    if (manifest.has_divisors) one.set_partial_divisor(shard.partial.divisor);
  }
}

Status DecodeLists(const proto::CheckpointManifest& message, Manifest* manifest) {
  if (message.parameter_size() > static_cast<int>(kMaxParameters)) {
    return BadData(StrCat("expected at most ", kMaxParameters, " parameters, found ",
                          message.parameter_size()));
  }
  for (const proto::CheckpointParameter& one : message.parameter()) {
    ParameterRecord& parameter = manifest->parameters.emplace_back();
    parameter.name = one.name();
    parameter.shape = Shape(one.shape().begin(), one.shape().end());
    parameter.offset = one.offset();
    if (one.has_weight_decay()) parameter.group.weight_decay = one.weight_decay();
    if (one.has_lr_factor()) parameter.group.lr_factor = one.lr_factor();
    parameter.frozen = one.frozen();
  }
  for (const proto::CheckpointBuffer& one : message.buffer()) {
    manifest->buffers.push_back({one.name(), one.bytes(), one.per_rank()});
  }
  if (message.shard_size() < 1 || message.shard_size() > kMaxWorld) {
    return BadData(StrCat("expected 1 to ", kMaxWorld, " shards, found ", message.shard_size()));
  }
  for (const proto::CheckpointShard& one : message.shard()) {
    ShardRecord& shard = manifest->shards.emplace_back();
    shard.bytes = one.bytes();
    shard.partial = {one.partial_samples(), one.partial_loss_sum(), one.partial_divisor()};
    if (!one.has_partial_divisor()) manifest->has_divisors = false;
    if (one.sha256().size() != shard.sha256.size()) {
      return BadData(StrCat("shard ", manifest->shards.size() - 1, ": expected a digest of ",
                            shard.sha256.size(), " bytes, found ", one.sha256().size()));
    }
    std::memcpy(shard.sha256.data(), one.sha256().data(), shard.sha256.size());
  }
  return Status::Ok();
}

Result<Manifest> Decode(std::string_view file) {
  GACCD_ASSIGN_OR_RETURN(const proto::CheckpointManifest message, Unframe(file));
  if (message.version() > kVersion) {
    return OtherVersion(message.program(),
                        StrCat("expected version ", kVersion, ", found ", message.version()));
  }
  if (message.version() != kVersion) {
    return BadData(StrCat("expected version ", kVersion, ", found ", message.version()));
  }
  Manifest manifest{
      .cursor = {.step = message.step(),
                 .samples = message.samples(),
                 .micro_step = message.micro_step(),
                 .by_length = message.by_length(),
                 .optimizer_updates = message.optimizer_updates(),
                 .seed = message.seed(),
                 .dataset_samples = message.dataset_samples(),
                 .content = {.train = message.train_content(), .eval = message.eval_content()},
                 .best = {.evaluated = message.evaluated_step(),
                          .step = message.best_step(),
                          .value = message.best_value(),
                          .reference = message.best_reference(),
                          .waited = message.best_waited()}},
      .writer_epoch = message.writer_epoch(),
      .created_s = message.created_s(),
      .program = message.program(),
      .job_text = message.job(),
      .hosts = message.hosts(),
      .block_bytes = message.block_bytes()};
  if (message.has_loss_scale()) {
    manifest.cursor.loss_scale = {.scale = message.loss_scale(),
                                  .growth_tracker = message.growth_tracker()};
  }
  GACCD_ASSIGN_OR_RETURN(manifest.plan, PlanFromProto(message.plan()));
  GACCD_RETURN_IF_ERROR(DecodeLists(message, &manifest));
  GACCD_RETURN_IF_ERROR(CheckManifest(manifest));
  return manifest;
}

}  // namespace

ByteRange PartRange(const BufferSpec& buffer, std::int64_t rank, std::int64_t world) {
  if (buffer.per_rank) return {0, buffer.bytes};
  const std::uint64_t units = (buffer.bytes + kUnitBytes - 1) / kUnitBytes;
  // Avoids the product units * rank, which may overflow: q r + floor(rest r / W), rest < W.
  const auto r = static_cast<std::uint64_t>(rank);
  const auto w = static_cast<std::uint64_t>(world);
  const auto first = [&](std::uint64_t k) {
    const std::uint64_t unit = units / w * k + units % w * k / w;
    return std::min(unit * kUnitBytes, buffer.bytes);
  };
  return {first(r), first(r + 1) - first(r)};
}

std::uint64_t PayloadBytes(std::span<const BufferSpec> buffers, std::int64_t rank,
                           std::int64_t world) {
  std::uint64_t bytes = 0;
  for (const BufferSpec& buffer : buffers) bytes += PartRange(buffer, rank, world).bytes;
  return bytes;
}

std::string HostsText(std::span<const std::string> host_of) {
  std::string text;
  for (auto first = host_of.begin(); first != host_of.end();) {
    const auto end = std::find_if(first, host_of.end(), [&](const auto& h) { return h != *first; });
    text += StrCat(text.empty() ? "" : ",", end - first, "x", *first);
    first = end;
  }
  return text;
}

std::string EncodeManifest(const Manifest& manifest) {
  proto::CheckpointManifest message;
  FillManifestProto(manifest, message);
  std::string body;
  message.SerializeToString(&body);
  std::string file(kMagic);
  AppendU32(static_cast<std::uint32_t>(body.size()), &file);
  file += body;
  AppendU32(ComputeCrc(file), &file);
  return file;
}

Result<Manifest> DecodeManifest(const std::string& name, std::string_view file) {
  auto manifest = Decode(file);
  if (!manifest.ok()) return manifest.status().WithContext(name);
  return manifest;
}

}  // namespace gaccd
