#include "daemon/config/job_checks.h"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/config/target_schedule.h"

namespace gaccd {
namespace {

// The number of classes of the labels; 0: the targets are vectors, or there are none.
std::int64_t Classes(const SourceSpec& source) {
  return std::visit(Overloaded{[](const TokensSpec& tokens) {
                                 if (tokens.masked) return tokens.vocabulary;
                                 if (!tokens.labels) return std::int64_t{0};
                                 return tokens.classes > 0 ? tokens.classes : tokens.vocabulary;
                               },
                               [](const StreamSpec& stream) { return stream.vocabulary; },
                               [](const auto& other) {
                                 if constexpr (requires { other.classes; }) return other.classes;
                                 return std::int64_t{0};
                               }},
                    source);
}

// Whether Classes() is the vocabulary, as for language models.
bool LabelsAreTokens(const SourceSpec& source) {
  const auto* tokens = std::get_if<TokensSpec>(&source);
  return std::holds_alternative<StreamSpec>(source) ||
         (tokens != nullptr && (tokens->masked || tokens->classes == 0));
}

// Whether only Classes() says that the targets are labels.
bool MayHaveClasses(const SourceSpec& source) {
  const auto has_field = [](const auto& one) {
    return requires { one.classes; };
  };
  return !std::holds_alternative<TokensSpec>(source) && std::visit(has_field, source);
}

Status Bad(const std::string& message) { return {ErrorKind::kConfig, message}; }

Status CheckLossFitsSource(const LossSpec& loss, const SourceSpec& source, std::string_view field) {
  const bool labels = Classes(source) > 0;
  if (std::holds_alternative<SoftmaxCrossEntropySpec>(loss) && !labels) {
    return Bad(StrCat("model.loss: softmax_cross_entropy needs labels, but ", field,
                      " has no labels (classes 0)",
                      MayHaveClasses(source) ? "; give its classes, how many there are" : ""));
  }
  if (std::holds_alternative<MeanSquaredErrorSpec>(loss) && labels) {
    return Bad(StrCat("model.loss: mean_squared_error needs vectors as targets, but ", field,
                      " has labels (classes ", Classes(source), ")"));
  }
  return {};
}

// The labels of masked tokens are the original tokens.
Status CheckMasked(const SourceSpec& source, std::string_view field) {
  const auto* tokens = std::get_if<TokensSpec>(&source);
  if (tokens == nullptr || !tokens->masked) return {};
  const auto bad = [&](std::string_view name, const std::string& why) {
    return Bad(StrCat(field, ".tokens.", name, ": ", why));
  };
  if (tokens->labels) {
    return bad("labels", "cannot be combined with masked: the labels are the masked tokens");
  }
  if (tokens->weights) {
    return bad("weights", "cannot be combined with masked: there the labels are the masked tokens");
  }
  if (tokens->classes > 0) {
    return bad("classes", "cannot be combined with masked: the classes are the vocabulary");
  }
  if (tokens->ignored_label != TokensSpec().ignored_label) {
    return bad("ignored_label",
               StrCat("cannot be combined with masked, found ", tokens->ignored_label));
  }
  const auto check = [&](std::string_view name, std::int64_t token) -> Status {
    if (token < tokens->vocabulary) return {};
    return bad(StrCat("masked.", name),
               StrCat("expected a token in [0, ", tokens->vocabulary, "), found ", token));
  };
  GACCD_RETURN_IF_ERROR(check("mask_token", tokens->masked->mask_token));
  for (const std::int64_t token : tokens->masked->special_token) {
    GACCD_RETURN_IF_ERROR(check("special_token", token));
  }
  return {};
}

// values: empty, or the minimum and the maximum.
Status CheckRange(const std::vector<double>& values, const std::string& field) {
  if (values.empty() || (values.size() == 2 && values[0] <= values[1])) return {};
  if (values.size() != 2) {
    return Bad(
        StrCat(field, ": expected a least and a largest value, found ", values.size(), " values"));
  }
  return Bad(
      StrCat(field, ": expected the least value first, found ", values[0], " and ", values[1]));
}

// training: random operations are allowed.
Status CheckImages(const SourceSpec& source, std::string_view field, bool training) {
  const auto* images = std::get_if<ImagesSpec>(&source);
  if (images == nullptr) return {};
  const auto name = [&](std::string_view of) { return StrCat(field, ".images.", of); };
  if (images->size.size() > 2) {
    return Bad(StrCat(name("size"), ": expected one value, or height and width, found ",
                      images->size.size(), " values"));
  }
  if (images->channels == 2) return Bad(name("channels") + ": expected 1 or 3, found 2");
  const auto* crop = std::get_if<RandomResizedCropSpec>(&images->crop);
  const auto* augment = std::get_if<RandAugmentSpec>(&images->augmentation);
  const ColorJitterSpec& jitter = images->color_jitter;
  const bool random = crop != nullptr || images->random_erasing || augment != nullptr ||
                      images->horizontal_flip + jitter.brightness + jitter.contrast +
                              jitter.saturation + jitter.hue >
                          0;
  if (random && !training) {
    return Bad(StrCat(field,
                      ".images: expected no random operation outside of the training; "
                      "center_crop cuts out the centre"));
  }
  if (crop != nullptr) {
    GACCD_RETURN_IF_ERROR(CheckRange(crop->scale, name("random_resized_crop.scale")));
    GACCD_RETURN_IF_ERROR(CheckRange(crop->ratio, name("random_resized_crop.ratio")));
  }
  if (augment != nullptr && augment->magnitude >= augment->num_magnitude_bins) {
    return Bad(StrCat(name("rand_augment.magnitude"), ": expected a number below the ",
                      augment->num_magnitude_bins, " bins, found ", augment->magnitude));
  }
  if (!images->random_erasing) return {};
  GACCD_RETURN_IF_ERROR(CheckRange(images->random_erasing->scale, name("random_erasing.scale")));
  return CheckRange(images->random_erasing->ratio, name("random_erasing.ratio"));
}

// The checks for all verbs; CheckTargets() is not for predict.
Status CheckFeatures(const DataSpec& data) {
  GACCD_RETURN_IF_ERROR(CheckImages(data.train, "data.train", /*training=*/true));
  if (data.eval) {
    GACCD_RETURN_IF_ERROR(CheckImages(*data.eval, "data.eval", /*training=*/false));
  }
  const auto is_other = [](const SourceSpec& source) {
    return !std::holds_alternative<ImagesSpec>(source);
  };
  const bool channels = !data.normalize.channel_mean.empty() || !data.normalize.channel_std.empty();
  if (!channels || !(is_other(data.train) || (data.eval && is_other(*data.eval)))) return {};
  return Bad("data.normalize: channel_mean and channel_std are for the source images only");
}

Status CheckOutputLoss(const Job& job) {
  if (GetLossKind(job.model.loss) != LossKind::kOutput) return {};
  if (!std::holds_alternative<GraphSpec>(job.model.architecture)) {
    return Bad(
        "model.loss: output needs a graph, whose output is the loss of each sample, found "
        "another model");
  }
  if (job.metric.empty()) return {};
  return Bad(StrCat("metric[0]: ", DescribeMetric(job.metric[0]).name,
                    " needs a prediction, and with the loss output the model gives only its loss: "
                    "expected no metric"));
}

// A contrastive loss compares each sample with all others of its update, so it cannot be evaluated.
Status CheckContrastive(const Job& job) {
  const bool dual = std::holds_alternative<DualEncoderSpec>(job.model.architecture);
  const bool contrastive = std::holds_alternative<ContrastiveSpec>(job.model.loss);
  if (dual != contrastive) {
    return Bad(dual ? "model.loss: dual_encoder needs contrastive, found another loss"
                    : "model.loss: contrastive needs dual_encoder, found another model");
  }
  if (!contrastive) return {};
  if (job.data.eval) {
    return Bad("data.eval: a contrastive loss has no evaluation; leave it out");
  }
  return {};
}

// "mse, mae, r2"
std::string TargetMetricNames() {
  std::string names;
  for (const MetricSpec& metric : AllMetrics()) {
    const MetricKind kind = DescribeMetric(metric);
    if (kind.input != MetricInput::kTargets) continue;
    names += StrCat(names.empty() ? "" : ", ", kind.name);
  }
  return names;
}

bool IsSame(const MetricSpec& a, const MetricSpec& b) {
  const auto* top = std::get_if<TopKSpec>(&a);
  const auto* other = std::get_if<TopKSpec>(&b);
  return a.index() == b.index() && (top == nullptr || top->k == other->k);
}

Status CheckMetrics(const Job& job) {
  const bool targets = GetLossKind(job.model.loss) == LossKind::kMeanSquaredError;
  for (std::size_t i = 0; i < job.metric.size(); ++i) {
    const auto bad = [i](const std::string& why) { return Bad(StrCat("metric[", i, "]: ", why)); };
    const MetricSpec& metric = job.metric[i];
    if (!job.data.eval) return bad("needs data.eval, which the job does not have");
    const MetricKind kind = DescribeMetric(metric);
    if ((kind.input == MetricInput::kTargets) != targets) {
      return bad(targets
                     ? StrCat(kind.name, " needs labels, but mean_squared_error has targets; ",
                              "expected one of ", TargetMetricNames())
                     : StrCat(kind.name, " needs targets, but softmax_cross_entropy has labels"));
    }
    const auto* top = std::get_if<TopKSpec>(&metric);
    if (const std::int64_t classes = Classes(*job.data.eval); top != nullptr && top->k > classes) {
      return bad(StrCat("top_k.k: expected at most the ", classes, " classes, found ", top->k));
    }
    for (std::size_t j = 0; j < i; ++j) {
      if (IsSame(metric, job.metric[j])) return bad(StrCat("is metric[", j, "] again"));
    }
  }
  return {};
}

Status CheckEvaluation(const Job& job) {
  const EvaluationSpec& rules = job.evaluation;
  if (rules.least_change > 0 && rules.patience == 0) {
    return Bad("evaluation.least_change: needs a patience above 0, found 0");
  }
  const bool requested =
      rules.every_updates > 0 || rules.keep_best || rules.patience > 0 || rules.metric != kLossName;
  if (job.data.eval || !requested) return {};
  return Bad("evaluation: the job has no data.eval to evaluate");
}

// A missing name would shift the names of the following classes.
Status CheckClassNames(const DataSpec& data) {
  std::vector<std::string> names = data.class_name;
  const std::int64_t classes = Classes(data.train);
  if (!names.empty() && classes > 0 && std::ssize(names) != classes) {
    return Bad(StrCat("data.class_name: expected a name for each of the ", classes,
                      " classes of data.train, found ", names.size()));
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return {};
  return Bad(StrCat("data.class_name: expected different names, found '", *twice, "' twice"));
}

// Mixing requires class labels: a mixed sample has those of both samples.
Status CheckMixing(const Job& job) {
  if (!job.data.mixup && !job.data.cutmix) return {};
  const std::string_view name = job.data.cutmix ? "data.cutmix" : "data.mixup";
  if (GetLossKind(job.model.loss) != LossKind::kSoftmaxCrossEntropy) {
    return Bad(StrCat(name,
                      ": mixes class labels, expected model.loss softmax_cross_entropy, found ",
                      Name(GetLossKind(job.model.loss))));
  }
  const SourceSpec& source = job.data.train;
  if (std::holds_alternative<TokensSpec>(source) || std::holds_alternative<StreamSpec>(source)) {
    return Bad(StrCat(name, ": mixes features, expected data.train idx, npy, csv or images, found ",
                      std::holds_alternative<TokensSpec>(source) ? "tokens" : "stream"));
  }
  return {};
}

// The labels or vectors that the loss and the metrics require.
Status CheckTargets(const Job& job) {
  GACCD_RETURN_IF_ERROR(CheckMixing(job));
  GACCD_RETURN_IF_ERROR(CheckMasked(job.data.train, "data.train"));
  if (job.data.eval) GACCD_RETURN_IF_ERROR(CheckMasked(*job.data.eval, "data.eval"));
  GACCD_RETURN_IF_ERROR(CheckLossFitsSource(job.model.loss, job.data.train, "data.train"));
  if (job.data.eval) {
    GACCD_RETURN_IF_ERROR(CheckLossFitsSource(job.model.loss, *job.data.eval, "data.eval"));
    if (Classes(*job.data.eval) != Classes(job.data.train)) {
      const bool tokens = LabelsAreTokens(job.data.train) && LabelsAreTokens(*job.data.eval);
      return Bad(StrCat("data.eval: must have the ", tokens ? "vocabulary" : "classes",
                        " of data.train, expected ", Classes(job.data.train), ", found ",
                        Classes(*job.data.eval)));
    }
  }
  return CheckMetrics(job);
}

}  // namespace

Status CheckCpuNumerics(const Numerics& numerics, std::string_view why_cpu) {
  if (numerics.tf32) {
    return Bad(StrCat("tf32: only GPUs round to TF32, expected false, found true, and ", why_cpu));
  }
  if (numerics.precision == Precision::kFP16) {
    return Bad(StrCat(
        "precision: only GPUs compute in fp16, expected f32, bf16 or f64-sums, found fp16, and ",
        why_cpu));
  }
  return {};
}

Status CheckGpuNumerics(const Numerics& numerics, std::string_view why_gpu) {
  if (numerics.precision != Precision::kF64Sums) return {};
  return Bad(
      StrCat("precision: only CPUs sum in f64, expected f32, bf16 or fp16, found f64-sums, and ",
             why_gpu));
}

namespace {

Status CheckPipeline(const Job& job) {
  const PipelineSpec& pipeline = job.pipeline;
  // With one stage, too: blocks without stages would train without a pipeline.
  if (!pipeline.blocks.empty() && std::ssize(pipeline.blocks) != pipeline.stages) {
    return Bad(StrCat("pipeline.blocks: expected one number for each stage, with stages ",
                      pipeline.stages, ", found ", pipeline.blocks.size()));
  }
  if (pipeline.stages == 1) return {};
  if (job.batch.recompute == Recompute::kBlocks) {
    return Bad("pipeline: is not supported with recompute yet, expected none, found blocks");
  }
  if (job.noise_scale_every > 0) {
    return Bad(
        StrCat("noise_scale_every: is not supported in a pipeline, in which no rank has the "
               "whole gradient of its samples: expected 0, found ",
               job.noise_scale_every));
  }
  return {};
}

}  // namespace

Status CheckGivenJob(const Job& job) {
  GACCD_RETURN_IF_ERROR(CheckClassNames(job.data));
  if (job.epochs == 0 && job.max_updates == 0) {
    return Bad("epochs: 0 means no end, so max_updates must be at least 1, found 0");
  }
  if (job.data.mix_group != DataSpec().mix_group && !job.data.mixup && !job.data.cutmix) {
    return Bad(StrCat("data.mix_group: needs mixup or cutmix, found ", job.data.mix_group,
                      " and neither"));
  }
  return {};
}

Status CheckJob(const Job& job, Verb verb) {
  GACCD_RETURN_IF_ERROR(CheckModel(job.model));
  GACCD_RETURN_IF_ERROR(CheckContrastive(job));
  GACCD_RETURN_IF_ERROR(CheckOutputLoss(job));
  const auto* sgd = std::get_if<SgdSpec>(&job.optimizer.kind);
  if (sgd != nullptr && sgd->nesterov && sgd->momentum == 0) {
    return Bad("optimizer.sgd.nesterov: needs a momentum above 0, found 0");
  }
  if (verb != Verb::kPredict) GACCD_RETURN_IF_ERROR(CheckTargets(job));
  GACCD_RETURN_IF_ERROR(CheckFeatures(job.data));
  if (job.loss_scale.init_scale < job.loss_scale.least_scale) {
    return Bad(StrCat("loss_scale.init_scale: must be at least least_scale, ",
                      job.loss_scale.least_scale, ", found ", job.loss_scale.init_scale));
  }
  GACCD_RETURN_IF_ERROR(CheckTargetSchedule(job.batch));
  GACCD_RETURN_IF_ERROR(CheckEvaluation(job));
  GACCD_RETURN_IF_ERROR(CheckPipeline(job));
  if (job.device == Device::kCpu) return CheckCpuNumerics(GetNumerics(job), "device is cpu");
  if (job.device == Device::kCuda) return CheckGpuNumerics(GetNumerics(job), "device is cuda");
  return {};
}

}  // namespace gaccd
