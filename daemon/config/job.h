// The job as the daemon sees it: plain values, already checked. Made from job text and flags by
// job_text.h; the meaning and the default of every field stand in proto/job.proto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/plan/plan.h"

namespace gaccd {

struct FlattenSpec {};
struct LinearSpec {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool bias = true;
};
struct ReluSpec {};
struct GeluSpec {
  bool tanh = false;
};
struct TanhSpec {};
struct SiluSpec {};
struct LayerNormSpec {
  std::int64_t width = 0;
  double epsilon = 1e-5;
};
struct EmbeddingSpec {
  std::int64_t rows = 0;
  std::int64_t width = 0;
};
struct DropoutSpec {
  double p = 0;
};
struct LayerSpec {
  std::string name;
  std::variant<FlattenSpec, LinearSpec, ReluSpec, GeluSpec, TanhSpec, SiluSpec, LayerNormSpec,
               EmbeddingSpec, DropoutSpec>
      kind;
};
struct MlpSpec {
  std::vector<std::int64_t> widths;
};
struct GptSpec {
  std::int64_t vocabulary = 50257;
  std::int64_t context = 1024;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t hidden = 0;  // 0: 4 x width
  double epsilon = 1e-5;
  double dropout = 0;
};
struct BertSpec {
  std::int64_t vocabulary = 30522;
  std::int64_t context = 512;
  std::int64_t segments = 2;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t width = 768;
  std::int64_t hidden = 0;  // 0: 4 x width
  std::int64_t classes = 2;
  double epsilon = 1e-12;
  double dropout = 0;
};
struct TowerSpec {
  std::string input;  // the tensor of a sample that it reads
  std::vector<LayerSpec> layers;
};
struct DualEncoderSpec {
  TowerSpec a;
  TowerSpec b;
  std::int64_t width = 0;
  double temperature = 0.07;
  double max_scale = 100;  // 0: no limit
};
struct LayersSpec {};
enum class LossKind : std::uint8_t { kSoftmaxCrossEntropy, kMeanSquaredError, kContrastive };
struct ModelSpec {
  std::vector<LayerSpec> layers;
  LossKind loss = LossKind::kSoftmaxCrossEntropy;
  std::variant<LayersSpec, MlpSpec, GptSpec, BertSpec, DualEncoderSpec> architecture =
      {};  // LayersSpec: `layers`
};

struct IdxSource {
  std::string images;
  std::string labels;
  std::int64_t classes = 10;
};
struct NpySource {
  std::string features;
  std::string targets;
  std::int64_t classes = 0;  // 0: the targets are vectors
};
struct SyntheticSource {
  std::int64_t samples = 0;
  std::int64_t features = 10;
  std::int64_t outputs = 1;
  double noise = 0.1;
  std::uint64_t seed = 1;
};
struct TokensSource {
  std::string tokens;
  std::string lengths;  // this and the next two: empty for none
  std::string segments;
  std::string labels;
  std::int64_t vocabulary = 0;
  std::int64_t classes = 0;  // 0: the labels are tokens
  std::int64_t segment_types = 2;
};
struct StreamSource {
  std::string path;
  std::int64_t length = 0;
  std::int64_t vocabulary = 0;
};

struct ArraySpec {
  std::string name;
  std::string path;
  std::int64_t vocabulary = 0;  // 0: features
};
struct ArraysSource {
  std::vector<ArraySpec> arrays;
};
using SourceSpec =
    std::variant<IdxSource, NpySource, SyntheticSource, TokensSource, StreamSource, ArraysSource>;
struct NormalizeSpec {  // feature = (stored * scale - mean) / std
  double scale = 1;
  double mean = 0;
  double std = 1;
};
struct DataSpec {
  SourceSpec train;
  std::optional<SourceSpec> eval;
  NormalizeSpec normalize;
  bool shuffle = true;
  std::string job_folder;  // of the job file, for relative paths; no part of the job text
};

// What happens to the samples left at the end of an epoch that do not fill an update.
enum class LastCycle : std::uint8_t { kUpdate, kCarry, kDrop };
[[nodiscard]] std::string_view Name(LastCycle policy);  // "update", ...

struct BatchSpec {
  std::int64_t target = 0;
  std::int64_t micro = 10;
  Rounding rounding = Rounding::kExact;
  LastCycle last_cycle = LastCycle::kUpdate;
  LrRule lr_rule = LrRule::kNone;
  std::int64_t reference = 0;

  // Which of these the job text gives; the others have their default.
  struct Given {
    bool micro = false;
    bool rounding = false;
    bool lr_rule = false;
  } given;
};

struct SgdSpec {
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};
struct AdamWSpec {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
};
// For parameters by name: * stands for any text, ? for any character.
struct GroupRule {
  std::string match;
  std::optional<double> weight_decay;
  std::optional<double> lr_factor;
  std::optional<bool> freeze;
};
struct OptimizerSpec {
  double lr = 0;
  std::variant<SgdSpec, AdamWSpec> kind;
  std::vector<GroupRule> groups = {};
};

struct ConstantShape {};
struct CosineShape {
  double final_ratio = 0;
};
struct StepShape {
  std::int64_t every_updates = 0;
  double gamma = 0.1;
};
struct ScheduleSpec {
  std::int64_t warmup_updates = 0;
  std::variant<ConstantShape, CosineShape, StepShape> shape;
};

// On which devices, and how exactly, the ranks compute.
enum class Device : std::uint8_t {
  kAuto,  // GPUs if every rank finds one, CPUs if none does; anything else is an error
  kCpu,
  kCuda,
};
[[nodiscard]] std::string_view Name(Device device);  // "auto", ...
enum class Precision : std::uint8_t {
  kF32,
  kBF16,  // weights and activations of the products in bf16; master weights, gradients, sums f32
};
[[nodiscard]] std::string_view Name(Precision precision);  // "f32", ...

struct Numerics {
  Precision precision = Precision::kF32;
  bool tf32 = false;           // f32 products on a GPU may round their inputs to TF32
  bool deterministic = false;  // the same bits from run to run, also where it is slower
};

struct Job {
  std::string name;
  ModelSpec model;
  DataSpec data;
  BatchSpec batch;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  double clip_norm = 0;
  std::int64_t epochs = 1;
  std::int64_t max_updates = 0;
  std::uint64_t seed = 1;
  std::int64_t log_every = 100;
  Device device = Device::kAuto;
  Numerics numerics;
};

}  // namespace gaccd
