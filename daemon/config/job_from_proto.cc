// Job text that protobuf has parsed becomes a checked Job.
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/config/job_proto.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

Status Bad(std::string_view field, std::string_view problem) {
  return {ErrorKind::kConfig, StrCat(field, ": ", problem)};
}

Status AtLeast(std::string_view field, std::int64_t value, std::int64_t least) {
  if (value >= least) return {};
  return Bad(field, StrCat("must be at least ", least, ", found ", value));
}

// A finite number in [least, most), or (least, most) when `open`.
struct Range {
  double least = 0;
  bool open = false;
  double most = std::numeric_limits<double>::infinity();
};
Status InRange(std::string_view field, double value, Range range) {
  const bool above = range.open ? value > range.least : value >= range.least;
  if (above && value < range.most) return {};  // neither NaN nor an infinity gets here
  std::string wanted = StrCat(range.open ? "must be above " : "must be at least ", range.least);
  if (std::isfinite(range.most)) wanted += StrCat(" and below ", range.most);
  return Bad(field, StrCat(wanted, ", found ", value));
}

Status Finite(std::string_view field, double value) {
  if (std::isfinite(value)) return {};
  return Bad(field, StrCat("must be finite, found ", value));
}

// Names become file names, keys of weights and words of log lines.
Status CheckName(std::string_view field, std::string_view name) {
  constexpr std::size_t kLongest = 128;
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (name.empty()) return Bad(field, "is required");
  if (name.size() > kLongest) {
    return Bad(field, StrCat("has at most ", kLongest, " characters, found ", name.size()));
  }
  if (name.find_first_not_of(kAllowed) != std::string_view::npos || name == "." || name == "..") {
    return Bad(field, StrCat("may hold letters, digits and . _ -, found '", name, "'"));
  }
  return {};
}

Status CheckPath(std::string_view field, std::string_view path) {
  if (path.empty()) return Bad(field, "is required");
  if (path.find('\0') != std::string_view::npos) return Bad(field, "holds a NUL character");
  return {};
}

Result<LayerSpec> ReadLayer(const proto::Layer& message, const std::string& field) {
  GACCD_RETURN_IF_ERROR(CheckName(field + ".name", message.name()));
  LayerSpec layer{.name = message.name(), .kind = FlattenSpec{}};
  switch (message.kind_case()) {
    case proto::Layer::kFlatten:
      break;
    case proto::Layer::kRelu:
      layer.kind = ReluSpec{};
      break;
    case proto::Layer::kLinear: {
      const proto::Linear& linear = message.linear();
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".linear.in", linear.in(), 1));
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".linear.out", linear.out(), 1));
      layer.kind = LinearSpec{.in = linear.in(), .out = linear.out(), .bias = linear.bias()};
      break;
    }
    case proto::Layer::KIND_NOT_SET:
      return Bad(field, StrCat("layer '", message.name(), "' needs flatten, linear or relu"));
  }
  return layer;
}

Result<ModelSpec> ReadModel(const proto::Model& message) {
  ModelSpec model;
  if (message.layer_size() == 0) return Bad("model.layer", "is required, at least one");
  std::set<std::string, std::less<>> names;
  for (int i = 0; i < message.layer_size(); ++i) {
    const std::string field = StrCat("model.layer[", i, "]");
    GACCD_ASSIGN_OR_RETURN(LayerSpec layer, ReadLayer(message.layer(i), field));
    if (!names.insert(layer.name).second) {
      return Bad(field + ".name", StrCat("two layers are called '", layer.name, "'"));
    }
    model.layers.push_back(std::move(layer));
  }
  switch (message.loss().kind_case()) {
    case proto::Loss::kSoftmaxCrossEntropy:
      model.loss = LossKind::kSoftmaxCrossEntropy;
      return model;
    case proto::Loss::kMeanSquaredError:
      model.loss = LossKind::kMeanSquaredError;
      return model;
    case proto::Loss::KIND_NOT_SET:
      break;
  }
  return Bad("model.loss", "is required: softmax_cross_entropy or mean_squared_error");
}

Result<SourceSpec> ReadSource(const proto::Source& message, const std::string& field) {
  switch (message.kind_case()) {
    case proto::Source::kIdx: {
      const proto::Idx& idx = message.idx();
      GACCD_RETURN_IF_ERROR(CheckPath(field + ".idx.images", idx.images()));
      GACCD_RETURN_IF_ERROR(CheckPath(field + ".idx.labels", idx.labels()));
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".idx.classes", idx.classes(), 1));
      return SourceSpec(IdxSource{idx.images(), idx.labels(), idx.classes()});
    }
    case proto::Source::kNpy: {
      const proto::Npy& npy = message.npy();
      GACCD_RETURN_IF_ERROR(CheckPath(field + ".npy.features", npy.features()));
      GACCD_RETURN_IF_ERROR(CheckPath(field + ".npy.targets", npy.targets()));
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".npy.classes", npy.classes(), 0));
      return SourceSpec(NpySource{npy.features(), npy.targets(), npy.classes()});
    }
    case proto::Source::kSynthetic: {
      const proto::Synthetic& made = message.synthetic();
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".synthetic.samples", made.samples(), 1));
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".synthetic.features", made.features(), 1));
      GACCD_RETURN_IF_ERROR(AtLeast(field + ".synthetic.outputs", made.outputs(), 1));
      GACCD_RETURN_IF_ERROR(InRange(field + ".synthetic.noise", made.noise(), {}));
      return SourceSpec(SyntheticSource{made.samples(), made.features(), made.outputs(),
                                        made.noise(), made.seed()});
    }
    case proto::Source::KIND_NOT_SET:
      break;
  }
  return Bad(field, "is required: idx, npy or synthetic");
}

Result<DataSpec> ReadData(const proto::Data& message) {
  DataSpec data;
  GACCD_ASSIGN_OR_RETURN(data.train, ReadSource(message.train(), "data.train"));
  if (message.has_eval()) {
    GACCD_ASSIGN_OR_RETURN(data.eval, ReadSource(message.eval(), "data.eval"));
  }
  const proto::Normalize& normalize = message.normalize();
  GACCD_RETURN_IF_ERROR(InRange("data.normalize.scale", normalize.scale(), {.open = true}));
  GACCD_RETURN_IF_ERROR(Finite("data.normalize.mean", normalize.mean()));
  GACCD_RETURN_IF_ERROR(InRange("data.normalize.std", normalize.std(), {.open = true}));
  data.normalize = {normalize.scale(), normalize.mean(), normalize.std()};
  data.shuffle = message.shuffle();
  return data;
}

Result<BatchSpec> ReadBatch(const proto::Batch& message) {
  BatchSpec batch;
  if (message.has_target()) GACCD_RETURN_IF_ERROR(AtLeast("batch.target", message.target(), 1));
  GACCD_RETURN_IF_ERROR(AtLeast("batch.micro", message.micro(), 1));
  GACCD_RETURN_IF_ERROR(AtLeast("batch.reference", message.reference(), 0));
  batch.target = message.target();
  batch.micro = message.micro();
  batch.reference = message.reference();
  batch.rounding = static_cast<Rounding>(message.rounding());
  batch.last_cycle = static_cast<LastCycle>(message.last_cycle());
  batch.lr_rule = static_cast<LrRule>(message.lr_rule());
  batch.given = {message.has_micro(), message.has_rounding(), message.has_lr_rule()};
  return batch;
}

// The enumerators are cast above, so their numbers must agree.
static_assert(static_cast<int>(Rounding::kExact) == proto::Batch::EXACT &&
              static_cast<int>(Rounding::kFloor) == proto::Batch::FLOOR &&
              static_cast<int>(Rounding::kCeil) == proto::Batch::CEIL &&
              static_cast<int>(Rounding::kNearest) == proto::Batch::NEAREST &&
              proto::Batch::Rounding_ARRAYSIZE == 4);
static_assert(static_cast<int>(LastCycle::kUpdate) == proto::Batch::UPDATE &&
              static_cast<int>(LastCycle::kCarry) == proto::Batch::CARRY &&
              static_cast<int>(LastCycle::kDrop) == proto::Batch::DROP &&
              proto::Batch::LastCycle_ARRAYSIZE == 3);
static_assert(static_cast<int>(LrRule::kNone) == proto::Batch::NONE &&
              static_cast<int>(LrRule::kLinear) == proto::Batch::LINEAR &&
              static_cast<int>(LrRule::kSqrt) == proto::Batch::SQRT &&
              proto::Batch::LrRule_ARRAYSIZE == 3);

static_assert(static_cast<int>(Device::kAuto) == proto::Job::AUTO &&
              static_cast<int>(Device::kCpu) == proto::Job::CPU &&
              static_cast<int>(Device::kCuda) == proto::Job::CUDA &&
              proto::Job::Device_ARRAYSIZE == 3);
static_assert(static_cast<int>(Precision::kF32) == proto::Job::F32 &&
              static_cast<int>(Precision::kBF16) == proto::Job::BF16 &&
              proto::Job::Precision_ARRAYSIZE == 2);

Result<OptimizerSpec> ReadOptimizer(const proto::Optimizer& message) {
  OptimizerSpec optimizer;
  if (!message.has_lr()) return Bad("optimizer.lr", "is required");
  GACCD_RETURN_IF_ERROR(InRange("optimizer.lr", message.lr(), {.open = true}));
  optimizer.lr = message.lr();
  switch (message.kind_case()) {
    case proto::Optimizer::kSgd: {
      const proto::Sgd& sgd = message.sgd();
      GACCD_RETURN_IF_ERROR(InRange("optimizer.sgd.momentum", sgd.momentum(), {.most = 1}));
      GACCD_RETURN_IF_ERROR(InRange("optimizer.sgd.weight_decay", sgd.weight_decay(), {}));
      if (sgd.nesterov() && sgd.momentum() == 0) {
        return Bad("optimizer.sgd.nesterov", "needs a momentum above 0, found 0");
      }
      optimizer.kind = SgdSpec{sgd.momentum(), sgd.weight_decay(), sgd.nesterov()};
      return optimizer;
    }
    case proto::Optimizer::kAdamw: {
      const proto::AdamW& adamw = message.adamw();
      GACCD_RETURN_IF_ERROR(InRange("optimizer.adamw.beta1", adamw.beta1(), {.most = 1}));
      GACCD_RETURN_IF_ERROR(InRange("optimizer.adamw.beta2", adamw.beta2(), {.most = 1}));
      GACCD_RETURN_IF_ERROR(InRange("optimizer.adamw.epsilon", adamw.epsilon(), {.open = true}));
      GACCD_RETURN_IF_ERROR(InRange("optimizer.adamw.weight_decay", adamw.weight_decay(), {}));
      optimizer.kind =
          AdamWSpec{adamw.beta1(), adamw.beta2(), adamw.epsilon(), adamw.weight_decay()};
      return optimizer;
    }
    case proto::Optimizer::KIND_NOT_SET:
      break;
  }
  return Bad("optimizer", "needs sgd or adamw");
}

Result<ScheduleSpec> ReadSchedule(const proto::Schedule& message) {
  ScheduleSpec schedule;
  GACCD_RETURN_IF_ERROR(AtLeast("schedule.warmup_updates", message.warmup_updates(), 0));
  schedule.warmup_updates = message.warmup_updates();
  if (message.has_cosine()) {
    const double final_ratio = message.cosine().final_ratio();
    GACCD_RETURN_IF_ERROR(InRange("schedule.cosine.final_ratio", final_ratio, {}));
    schedule.shape = CosineShape{final_ratio};
  } else if (message.has_step()) {
    const proto::StepDecay& step = message.step();
    GACCD_RETURN_IF_ERROR(AtLeast("schedule.step.every_updates", step.every_updates(), 1));
    GACCD_RETURN_IF_ERROR(InRange("schedule.step.gamma", step.gamma(), {.open = true}));
    schedule.shape = StepShape{step.every_updates(), step.gamma()};
  }
  return schedule;
}

}  // namespace

Result<Job> JobFromProto(const proto::Job& message) {
  Job job;
  GACCD_RETURN_IF_ERROR(CheckName("name", message.name()));
  job.name = message.name();
  GACCD_ASSIGN_OR_RETURN(job.model, ReadModel(message.model()));
  GACCD_ASSIGN_OR_RETURN(job.data, ReadData(message.data()));
  GACCD_ASSIGN_OR_RETURN(job.batch, ReadBatch(message.batch()));
  GACCD_ASSIGN_OR_RETURN(job.optimizer, ReadOptimizer(message.optimizer()));
  GACCD_ASSIGN_OR_RETURN(job.schedule, ReadSchedule(message.schedule()));
  GACCD_RETURN_IF_ERROR(InRange("clip_norm", message.clip_norm(), {}));
  GACCD_RETURN_IF_ERROR(AtLeast("epochs", message.epochs(), 0));
  GACCD_RETURN_IF_ERROR(AtLeast("max_updates", message.max_updates(), 0));
  GACCD_RETURN_IF_ERROR(AtLeast("log_every", message.log_every(), 1));
  job.clip_norm = message.clip_norm();
  job.epochs = message.epochs();
  job.max_updates = message.max_updates();
  job.seed = message.seed();
  job.log_every = message.log_every();
  job.device = static_cast<Device>(message.device());
  job.numerics = {.precision = static_cast<Precision>(message.precision()),
                  .tf32 = message.tf32(),
                  .deterministic = message.deterministic()};
  return job;
}

}  // namespace gaccd
