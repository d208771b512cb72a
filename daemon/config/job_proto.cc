// Which member of the structs of job.h is which field of proto/job.proto. Types, defaults, ranges
// and help stand there.
#include "daemon/config/job_proto.h"

#include "daemon/config/fields.h"
#include "proto/job.pb.h"

namespace gaccd {

static void Fields(MessageFields& io, LinearSpec& spec) {
  io("in", spec.in);
  io("out", spec.out);
  io("bias", spec.bias);
}

static void Fields(MessageFields& io, GeluSpec& spec) { io("tanh", spec.tanh); }

static void Fields(MessageFields& io, LayerNormSpec& spec) {
  io("width", spec.width);
  io("epsilon", spec.epsilon);
}

static void Fields(MessageFields& io, EmbeddingSpec& spec) {
  io("rows", spec.rows);
  io("width", spec.width);
}

static void Fields(MessageFields& io, DropoutSpec& spec) { io("p", spec.p); }

static void Fields(MessageFields& io, LayerSpec& spec) {
  io("name", spec.name);
  io.OneOf(spec.kind, {"flatten", "linear", "relu", "gelu", "tanh", "silu", "layer_norm",
                       "embedding", "dropout"});
}

static void Fields(MessageFields& io, MlpSpec& spec) { io("widths", spec.widths); }

static void Fields(MessageFields& io, GptSpec& spec) {
  io("vocabulary", spec.vocabulary);
  io("context", spec.context);
  io("layers", spec.layers);
  io("heads", spec.heads);
  io("width", spec.width);
  io("hidden", spec.hidden);
  io("epsilon", spec.epsilon);
  io("dropout", spec.dropout);
}

static void Fields(MessageFields& io, BertSpec& spec) {
  io("vocabulary", spec.vocabulary);
  io("context", spec.context);
  io("segments", spec.segments);
  io("layers", spec.layers);
  io("heads", spec.heads);
  io("width", spec.width);
  io("hidden", spec.hidden);
  io("classes", spec.classes);
  io("epsilon", spec.epsilon);
  io("dropout", spec.dropout);
}

static void Fields(MessageFields& io, TowerSpec& spec) {
  io("input", spec.input);
  io("layer", spec.layers);
}

static void Fields(MessageFields& io, DualEncoderSpec& spec) {
  io("a", spec.a);
  io("b", spec.b);
  io("width", spec.width);
  io("temperature", spec.temperature);
  io("max_scale", spec.max_scale);
}

static void Fields(MessageFields& io, ModelSpec& spec) {
  io("layer", spec.layers);
  io.OneOf(spec.architecture, {"", "mlp", "gpt", "bert", "dual_encoder"});
  io.Kind("loss", spec.loss, {"softmax_cross_entropy", "mean_squared_error", "contrastive"});
}

static void Fields(MessageFields& io, IdxSource& spec) {
  io("images", spec.images);
  io("labels", spec.labels);
  io("classes", spec.classes);
}

static void Fields(MessageFields& io, NpySource& spec) {
  io("features", spec.features);
  io("targets", spec.targets);
  io("classes", spec.classes);
}

static void Fields(MessageFields& io, SyntheticSource& spec) {
  io("samples", spec.samples);
  io("features", spec.features);
  io("outputs", spec.outputs);
  io("noise", spec.noise);
  io("seed", spec.seed);
}

static void Fields(MessageFields& io, TokensSource& spec) {
  io("tokens", spec.tokens);
  io("lengths", spec.lengths);
  io("segments", spec.segments);
  io("labels", spec.labels);
  io("vocabulary", spec.vocabulary);
  io("classes", spec.classes);
  io("segment_types", spec.segment_types);
}

static void Fields(MessageFields& io, StreamSource& spec) {
  io("path", spec.path);
  io("length", spec.length);
  io("vocabulary", spec.vocabulary);
}

static void Fields(MessageFields& io, ArraySpec& spec) {
  io("name", spec.name);
  io("path", spec.path);
  io("vocabulary", spec.vocabulary);
}

static void Fields(MessageFields& io, ArraysSource& spec) { io("array", spec.arrays); }

static void Fields(MessageFields& io, SourceSpec& spec) {
  io.OneOf(spec, {"idx", "npy", "synthetic", "tokens", "stream", "arrays"});
}

static void Fields(MessageFields& io, NormalizeSpec& spec) {
  io("scale", spec.scale);
  io("mean", spec.mean);
  io("std", spec.std);
}

static void Fields(MessageFields& io, DataSpec& spec) {
  io("train", spec.train);
  io("eval", spec.eval);
  io("normalize", spec.normalize);
  io("shuffle", spec.shuffle);
}

static void Fields(MessageFields& io, BatchSpec& spec) {
  io("target", spec.target);
  io("micro", spec.micro);
  io("rounding", spec.rounding);
  io("last_cycle", spec.last_cycle);
  io("lr_rule", spec.lr_rule);
  io("reference", spec.reference);
  io.Given("micro", spec.given.micro);
  io.Given("rounding", spec.given.rounding);
  io.Given("lr_rule", spec.given.lr_rule);
}

static void Fields(MessageFields& io, SgdSpec& spec) {
  io("momentum", spec.momentum);
  io("weight_decay", spec.weight_decay);
  io("nesterov", spec.nesterov);
}

static void Fields(MessageFields& io, AdamWSpec& spec) {
  io("beta1", spec.beta1);
  io("beta2", spec.beta2);
  io("epsilon", spec.epsilon);
  io("weight_decay", spec.weight_decay);
}

static void Fields(MessageFields& io, GroupRule& spec) {
  io("match", spec.match);
  io("weight_decay", spec.weight_decay);
  io("lr_factor", spec.lr_factor);
  io("freeze", spec.freeze);
}

static void Fields(MessageFields& io, OptimizerSpec& spec) {
  io("lr", spec.lr);
  io.OneOf(spec.kind, {"sgd", "adamw"});
  io("group", spec.groups);
}

static void Fields(MessageFields& io, CosineShape& spec) { io("final_ratio", spec.final_ratio); }

static void Fields(MessageFields& io, StepShape& spec) {
  io("every_updates", spec.every_updates);
  io("gamma", spec.gamma);
}

static void Fields(MessageFields& io, ScheduleSpec& spec) {
  io("warmup_updates", spec.warmup_updates);
  io.OneOf(spec.shape, {"", "cosine", "step"});
}

static void Fields(MessageFields& io, Job& spec) {
  io("name", spec.name);
  io("model", spec.model);
  io("data", spec.data);
  io("batch", spec.batch);
  io("optimizer", spec.optimizer);
  io("schedule", spec.schedule);
  io("clip_norm", spec.clip_norm);
  io("epochs", spec.epochs);
  io("max_updates", spec.max_updates);
  io("seed", spec.seed);
  io("log_every", spec.log_every);
  io("device", spec.device);
  io("precision", spec.numerics.precision);
  io("tf32", spec.numerics.tf32);
  io("deterministic", spec.numerics.deterministic);
}

Job JobFromProto(proto::Job message) {
  Job job;
  MessageFields io(message, MessageFields::Direction::kRead);
  Fields(io, job);
  return job;
}

proto::Job JobToProto(Job job) {
  proto::Job message;
  MessageFields io(message, MessageFields::Direction::kWrite);
  Fields(io, job);
  return message;
}

}  // namespace gaccd
