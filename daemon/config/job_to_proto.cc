// A Job becomes a proto::Job with every field written out.
#include "collectives/base/overloaded.h"
#include "daemon/config/job_proto.h"
#include "proto/job.pb.h"

namespace gaccd {
namespace {

void Fill(const LayerSpec& layer, proto::Layer& message) {
  message.set_name(layer.name);
  std::visit(Overloaded{[&](const FlattenSpec&) { message.mutable_flatten(); },
                        [&](const ReluSpec&) { message.mutable_relu(); },
                        [&](const LinearSpec& spec) {
                          proto::Linear& linear = *message.mutable_linear();
                          linear.set_in(spec.in);
                          linear.set_out(spec.out);
                          linear.set_bias(spec.bias);
                        }},
             layer.kind);
}

void Fill(const ModelSpec& model, proto::Model& message) {
  for (const LayerSpec& layer : model.layers) Fill(layer, *message.add_layer());
  switch (model.loss) {
    case LossKind::kSoftmaxCrossEntropy:
      message.mutable_loss()->mutable_softmax_cross_entropy();
      break;
    case LossKind::kMeanSquaredError:
      message.mutable_loss()->mutable_mean_squared_error();
      break;
  }
}

void Fill(const SourceSpec& source, proto::Source& message) {
  std::visit(Overloaded{[&](const IdxSource& spec) {
                          proto::Idx& idx = *message.mutable_idx();
                          idx.set_images(spec.images);
                          idx.set_labels(spec.labels);
                          idx.set_classes(spec.classes);
                        },
                        [&](const NpySource& spec) {
                          proto::Npy& npy = *message.mutable_npy();
                          npy.set_features(spec.features);
                          npy.set_targets(spec.targets);
                          npy.set_classes(spec.classes);
                        },
                        [&](const SyntheticSource& spec) {
                          proto::Synthetic& made = *message.mutable_synthetic();
                          made.set_samples(spec.samples);
                          made.set_features(spec.features);
                          made.set_outputs(spec.outputs);
                          made.set_noise(spec.noise);
                          made.set_seed(spec.seed);
                        }},
             source);
}

void Fill(const DataSpec& data, proto::Data& message) {
  Fill(data.train, *message.mutable_train());
  if (data.eval) Fill(*data.eval, *message.mutable_eval());
  proto::Normalize& normalize = *message.mutable_normalize();
  normalize.set_scale(data.normalize.scale);
  normalize.set_mean(data.normalize.mean);
  normalize.set_std(data.normalize.std);
  message.set_shuffle(data.shuffle);
}

void Fill(const BatchSpec& batch, proto::Batch& message) {
  if (batch.target > 0) message.set_target(batch.target);
  message.set_micro(batch.micro);
  message.set_rounding(static_cast<proto::Batch::Rounding>(batch.rounding));
  message.set_last_cycle(static_cast<proto::Batch::LastCycle>(batch.last_cycle));
  message.set_lr_rule(static_cast<proto::Batch::LrRule>(batch.lr_rule));
  message.set_reference(batch.reference);
}

void Fill(const OptimizerSpec& optimizer, proto::Optimizer& message) {
  message.set_lr(optimizer.lr);
  std::visit(Overloaded{[&](const SgdSpec& spec) {
                          proto::Sgd& sgd = *message.mutable_sgd();
                          sgd.set_momentum(spec.momentum);
                          sgd.set_weight_decay(spec.weight_decay);
                          sgd.set_nesterov(spec.nesterov);
                        },
                        [&](const AdamWSpec& spec) {
                          proto::AdamW& adamw = *message.mutable_adamw();
                          adamw.set_beta1(spec.beta1);
                          adamw.set_beta2(spec.beta2);
                          adamw.set_epsilon(spec.epsilon);
                          adamw.set_weight_decay(spec.weight_decay);
                        }},
             optimizer.kind);
}

void Fill(const ScheduleSpec& schedule, proto::Schedule& message) {
  message.set_warmup_updates(schedule.warmup_updates);
  std::visit(Overloaded{[](const ConstantShape&) {},
                        [&](const CosineShape& shape) {
                          message.mutable_cosine()->set_final_ratio(shape.final_ratio);
                        },
                        [&](const StepShape& shape) {
                          message.mutable_step()->set_every_updates(shape.every_updates);
                          message.mutable_step()->set_gamma(shape.gamma);
                        }},
             schedule.shape);
}

}  // namespace

void FillJobProto(const Job& job, proto::Job& message) {
  message.set_name(job.name);
  Fill(job.model, *message.mutable_model());
  Fill(job.data, *message.mutable_data());
  Fill(job.batch, *message.mutable_batch());
  Fill(job.optimizer, *message.mutable_optimizer());
  Fill(job.schedule, *message.mutable_schedule());
  message.set_clip_norm(job.clip_norm);
  message.set_epochs(job.epochs);
  message.set_max_updates(job.max_updates);
  message.set_seed(job.seed);
  message.set_log_every(job.log_every);
  message.set_device(static_cast<proto::Job::Device>(job.device));
  message.set_precision(static_cast<proto::Job::Precision>(job.numerics.precision));
  message.set_tf32(job.numerics.tf32);
  message.set_deterministic(job.numerics.deterministic);
}

}  // namespace gaccd
