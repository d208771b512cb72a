// Events of updates. Durations are seconds.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "daemon/telemetry/event_record.h"

namespace gaccd {

struct SlowRank {
  int rank = 0;
  std::string host;
  std::string phase;  // "data", "compute", "stopped"
  double ratio = 1;   // its busy time / the median over the ranks
};

// State of an update in fp16.
struct LossScaleRecord {
  double scale = 1;  // scale of its loss
  // Updates since it changed, including this one; 0: it changes now.
  std::int64_t growth_tracker = 0;
};

// Rates measured by the reporter over several updates; NaN: not known.
struct StepRates {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double samples_per_s = kUnknown;  // of the last update
  double dur_p50_s = kUnknown;
  double dur_p99_s = kUnknown;
  double eta_s = kUnknown;
  std::optional<double> mfu_ratio;       // of the last update, relative to the peak of all GPUs
  double wall_samples_per_s = kUnknown;  // since the first update of this attempt, with saves
};

// One update. loss and grad_norm are null in JSON if they are not finite; loss_finite and
// grad_finite say so. The straggler is that of the newest update whose times all ranks knew when
// this one began: the previous one, on GPUs the one before that.
struct StepRecord {
  static constexpr const char* kEvent = "step";

  std::int64_t epoch = 1;          // counted from 1
  std::int64_t step = 0;           // updates done, including this one
  std::int64_t steps_total = 0;    // of the whole run
  std::int64_t samples = 0;        // counted by the audit over all ranks
  std::int64_t target = 0;         // planned for this update
  std::int64_t samples_total = 0;  // of the run so far, without skipped updates
  double loss = 0;                 // sum over `divisor`
  double divisor = 0;              // number of counted units
  std::string unit = "samples";    // or "tokens", "weights"
  double grad_norm = 0;            // before clipping
  double lr = 0;
  bool skipped = false;                       // the gradient was not finite: no optimiser step
  std::optional<LossScaleRecord> loss_scale;  // set for fp16
  // dur_s = data_s + fwd_bwd_s + reduce_s + opt_s (+ time in between).
  double dur_s = 0;
  double data_s = 0;
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;
  // The rank that was busy for the longest time, and how long this one waited for it.
  std::optional<SlowRank> straggler;
  std::optional<double> wait_s;
  std::string digest;    // of the parameters after this update, 16 hex digits; empty: not computed
  StepRates rates = {};  // set by the reporter
  // Not written: the share of the micro-steps that this attempt did, in dur_s; the rest was
  // restored.
  double own_share = 1;
  // Not written: samples of the updates to come, if their number does not give the time left.
  std::optional<std::int64_t> samples_left = {};

  static void VisitFields(auto& fields, auto& update) {
    fields("epoch", update.epoch);
    fields("step", update.step);
    fields("steps_total", update.steps_total);
    fields("samples", update.samples);
    fields("target", update.target);
    fields("samples_total", update.samples_total);
    fields("loss", update.loss);
    fields.Computed("loss_finite", std::isfinite(update.loss));
    fields("divisor", update.divisor);
    fields.Text("unit", update.unit, kMaxWord);
    fields("grad_norm", update.grad_norm);
    fields.Computed("grad_finite", std::isfinite(update.grad_norm));
    fields("lr", update.lr);
    fields("skipped", update.skipped);
    fields.Group("loss_scale", update.loss_scale, [&](auto& scale) {
      fields("loss_scale", scale.scale);
      fields("growth_tracker", scale.growth_tracker);
    });
    fields("dur_s", update.dur_s);
    fields("data_s", update.data_s);
    fields("fwd_bwd_s", update.fwd_bwd_s);
    fields("reduce_s", update.reduce_s);
    fields("opt_s", update.opt_s);
    fields("wait_s", update.wait_s);
    fields("samples_per_s", update.rates.samples_per_s);
    fields("dur_p50_s", update.rates.dur_p50_s);
    fields("dur_p99_s", update.rates.dur_p99_s);
    fields("eta_s", update.rates.eta_s);
    fields("mfu_ratio", update.rates.mfu_ratio);
    fields.Group("straggler_rank", update.straggler, [&](auto& straggler) {
      fields("straggler_rank", straggler.rank);
      fields.Text("straggler_host", straggler.host, kMaxName);
      fields.Text("straggler_phase", straggler.phase, kMaxWord);
      fields("straggler_ratio", straggler.ratio);
    });
    fields.Text("digest", update.digest, kMaxWord);
  }
};

// The gradient noise scale (engine/noise_scale.h), averaged over its measurements in this attempt.
struct NoiseScaleRecord {
  static constexpr const char* kEvent = "noise_scale";

  std::int64_t step = 0;      // the newest measured update
  std::int64_t measured = 0;  // number of measured updates
  std::int64_t target = 0;    // samples of that update
  double gradient_variance = 0;
  double gradient_square = 0;
  std::optional<double> noise_scale;  // in samples; empty if gradient_square is not positive

  static void VisitFields(auto& fields, auto& noise) {
    fields("step", noise.step);
    fields("measured", noise.measured);
    fields("target", noise.target);
    fields("gradient_variance", noise.gradient_variance);
    fields("gradient_square", noise.gradient_square);
    fields("noise_scale", noise.noise_scale);
  }
};

// The loads of the ranks change at the next update, according to measured times. Loads as
// LoadsText(), "160x14,80x9"; older versions wrote them by rank, truncated. Speeds by rank,
// "160x1,80x0.6"; empty if there are too many.
struct RebalanceRecord {
  static constexpr const char* kEvent = "rebalance";

  std::int64_t step = 0;  // updates done with the previous loads
  double gain_ratio = 1;  // expected speed-up of an update
  double idle_ratio = 0;  // expected share of time that ranks wait
  std::int64_t accum_steps = 1;
  std::string loads_before;
  std::string loads;
  std::string speeds;

  static void VisitFields(auto& fields, auto& change) {
    fields("step", change.step);
    fields("gain_ratio", change.gain_ratio);
    fields("idle_ratio", change.idle_ratio);
    fields("accum_steps", change.accum_steps);
    fields.Text("loads_before", change.loads_before, kMaxList);
    fields.Text("loads", change.loads, kMaxList);
    fields.Text("speeds", change.speeds, kMaxSpeeds);
  }
};

// A stage of batch.target_schedule begins with the next update. Loads as LoadsText().
struct TargetRecord {
  static constexpr const char* kEvent = "target";

  std::int64_t step = 0;           // updates done before it
  std::int64_t samples_total = 0;  // samples of these updates, including skipped ones
  std::int64_t stage = 1;          // from 1
  std::int64_t target_before = 0;  // effective batch
  std::int64_t target = 0;
  std::int64_t accum_steps = 1;
  std::string loads;

  static void VisitFields(auto& fields, auto& change) {
    fields("step", change.step);
    fields("samples_total", change.samples_total);
    fields("stage", change.stage);
    fields("target_before", change.target_before);
    fields("target", change.target);
    fields("accum_steps", change.accum_steps);
    fields.Text("loads", change.loads, kMaxList);
  }
};

// Statistics of one rank over the updates since its previous line.
struct RankStepRecord {
  static constexpr const char* kEvent = "rank_step";

  std::int64_t step = 0;     // the newest update
  std::int64_t updates = 0;  // number of updates
  double dur_max_s = 0;
  // Means over these updates.
  double dur_s = 0;
  double data_s = 0;
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;
  double wait_s = 0;
  std::int64_t memory_bytes = 0;  // current; see ProcessMemory

  static void VisitFields(auto& fields, auto& rank) {
    fields("step", rank.step);
    fields("updates", rank.updates);
    fields("dur_s", rank.dur_s);
    fields("dur_max_s", rank.dur_max_s);
    fields("data_s", rank.data_s);
    fields("fwd_bwd_s", rank.fwd_bwd_s);
    fields("reduce_s", rank.reduce_s);
    fields("opt_s", rank.opt_s);
    fields("wait_s", rank.wait_s);
    fields.NotZero("memory_bytes", rank.memory_bytes);
  }
};

}  // namespace gaccd
