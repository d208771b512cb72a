// Selftest: checks on this machine that accumulation over ragged micro-batches and ranks gives the
// gradient of one big batch. All ranks are threads of this process with different data; the update
// is the daemon's own RunUpdate(). The same check must detect two well-known mistakes:
//   mean of means          every micro-batch has the same weight, however many samples it has
//   last micro-batch only  earlier micro-batches of an update are overwritten
// The same for a loss over tokens, with a different number of labelled tokens per sample:
//   mean of rank means     every rank divides by its own count of tokens
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Results for one plan. Deviations are |g - g_ref| / |g_ref| over the whole gradient, the maximum
// over the ranks; g_ref is the gradient of all samples in one batch on one rank.
struct SelftestCase {
  Plan plan;
  double right = 0;
  double mean_of_means = 0;
  double last_only = 0;
  double tokens = 0;            // deviation for the correct loss over tokens
  double rank_means = 0;        // with every rank's own divisor
  double rank_means_error = 0;  // its largest error of the weight of a token

  // The largest deviation explained by rounding: the maximum of 1e-6 and 2^-24 (half a unit in the
  // last place of f32) x sqrt(ranks x micro-steps), whose gradients are added one by one.
  [[nodiscard]] double tolerance() const;
  // The largest error of the weight of a sample with the mean of means: |w / w_right - 1|. 0 if all
  // micro-batches have the same size.
  [[nodiscard]] double mean_of_means_error() const;
  // Whether the error exceeds the tolerance enough that the gradient must show it.
  [[nodiscard]] bool mean_of_means_shows() const;
  [[nodiscard]] bool rank_means_show() const;
  // Whether a rank has more than one non-empty micro-batch.
  [[nodiscard]] bool several_steps() const;
  // Whether the correct way is correct, and each mistake is detected where it shows.
  [[nodiscard]] bool passed() const;

  // Takes the maximum of the results of two ranks.
  void KeepLarger(const SelftestCase& other);
};

// Tests the request in every rounding mode. kOs if this machine cannot run so many ranks.
Result<std::vector<SelftestCase>> RunSelftestCases(const PlanRequest& request);

// One line of JSON per mode; null for mistakes that do not show.
[[nodiscard]] std::string SelftestJson(const std::vector<SelftestCase>& cases);

// A table for users, with the verdict in the last line.
[[nodiscard]] std::string SelftestText(const PlanRequest& request,
                                       const std::vector<SelftestCase>& cases);

// The verb `gaccd selftest`.

// Prints the results; kInternal if a check failed. Errors are not printed here.
Status RunSelftest(const Flags& flags);

}  // namespace gaccd
