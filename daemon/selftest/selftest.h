// Selftest: proof, on this machine, that accumulation over ragged micro-batches and ranks gives the
// gradient of one big batch. All ranks run as threads of this process, with different data on each;
// the update is the daemon's own RunUpdate(). The same check must catch two well-known mistakes:
//   mean of means          every micro-batch weighs the same, however many samples it has
//   last micro-batch only  earlier micro-batches of an update are overwritten
// And so for a loss over tokens, of which every sample has another number with a label:
//   mean of rank means     every rank divides by its own count of tokens
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// One plan, tested. Deviations are |g - g_ref| / |g_ref| over the whole gradient, the largest over
// the ranks; g_ref is the gradient of all samples in one batch on one rank.
struct SelftestCase {
  Plan plan;
  double right = 0;
  double mean_of_means = 0;
  double last_only = 0;
  double tokens = 0;            // of the loss over tokens, done right
  double rank_means = 0;        // and with every rank's own divisor
  double rank_means_error = 0;  // how far that is from the right weight of a token, at most

  // The largest deviation that rounding explains: 1e-6, or half a unit in the last place of f32
  // times the root of the number of micro-steps, whose gradients are added one by one.
  [[nodiscard]] double tolerance() const;
  // How far the mean of means is from the right weight of a sample, at most: |w / w_right - 1|.
  // 0 where all micro-batches have the same size.
  [[nodiscard]] double mean_of_means_error() const;
  // That is so much more than the tolerance that the gradient must show it.
  [[nodiscard]] bool mean_of_means_shows() const;
  [[nodiscard]] bool rank_means_show() const;
  // Some rank has more than one micro-batch with samples.
  [[nodiscard]] bool several_steps() const;
  // The right way is right, and each mistake is caught where it shows.
  [[nodiscard]] bool passed() const;

  // The figures of two ranks as one.
  void KeepLarger(const SelftestCase& other);
};

// Tests the request in every rounding mode. kOs when this machine cannot run so many ranks.
Result<std::vector<SelftestCase>> RunSelftestCases(const PlanRequest& request);

// One line of JSON a mode; what does not show a mistake has null for it.
[[nodiscard]] std::string SelftestJson(const std::vector<SelftestCase>& cases);

// A table for people, and the verdict in its last line.
[[nodiscard]] std::string SelftestText(const PlanRequest& request,
                                       const std::vector<SelftestCase>& cases);

}  // namespace gaccd
