#include "daemon/stop/clocks.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/base/strings.h"
#include "collectives/base/time.h"

namespace gaccd {
namespace {

constexpr int kRounds = 3;
constexpr int kMaxNames = 8;  // per warning

// Differences of the readings of a round from their median, minus the uncertainty of the round.
std::vector<double> Ahead(const std::vector<double>& readings, double uncertainty_s) {
  std::vector<double> sorted = readings;
  const auto middle = sorted.begin() + (std::ssize(sorted) - 1) / 2;
  std::nth_element(sorted.begin(), middle, sorted.end());
  std::vector<double> ahead;
  for (const double reading : readings) {
    const double difference = reading - *middle;
    const bool sure = std::abs(difference) > Clocks::kMaxAheadS + uncertainty_s;
    ahead.push_back(sure ? difference : 0);
  }
  return ahead;
}

}  // namespace

double Clocks::SystemSeconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Result<Clocks> Clocks::Compare(Communicator& comm, const WallClock& wall) {
  const auto me = static_cast<std::size_t>(comm.rank());
  Clocks clocks;
  std::vector<double> readings;
  double shortest_s = std::numeric_limits<double>::infinity();
  auto before = Steady::now();
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = Steady::now();
    const double mine = wall();
    GACCD_ASSIGN_OR_RETURN(std::vector<double> all, GatherAll(comm, mine));
    // The first round waits for the last rank.
    const double took_s = SecondsSince(before);
    before = begin;
    if (round == 0 || took_s >= shortest_s) continue;
    shortest_s = took_s;
    readings = std::move(all);
    clocks.steady_ = begin;
    clocks.wall_s_ = mine;
  }
  clocks.ahead_s_ = Ahead(readings, shortest_s);
  clocks.wall_s_ -= clocks.ahead_s_[me];
  return clocks;
}

std::string Clocks::Warning(std::span<const std::string> hosts) const {
  std::string text;
  int others = 0;
  for (std::size_t rank = 0; rank < ahead_s_.size(); ++rank) {
    const double ahead = ahead_s_[rank];
    if (ahead == 0 || ++others > kMaxNames) continue;
    text += StrCat(text.empty() ? "the clock of " : "; of ",
                   RankOnHost(static_cast<int>(rank), hosts), " is ", std::round(std::abs(ahead)),
                   " s ", ahead > 0 ? "ahead of" : "behind", " most ranks'");
  }
  if (others > kMaxNames) text += StrCat("; of ", others - kMaxNames, " more it differs, too");
  return text;
}

Clocks::Steady::time_point Clocks::Deadline(std::int64_t time_s) const {
  // Sufficient for any job, without overflow.
  constexpr double kMax = 1e9;
  const double left = std::clamp(static_cast<double>(time_s) - wall_s_, -kMax, kMax);
  return steady_ +
         std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(left));
}

}  // namespace gaccd
