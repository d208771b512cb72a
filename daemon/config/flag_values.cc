#include "daemon/config/flag_values.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/plan/speeds.h"
#include "slurm/hostlist.h"

namespace gaccd {

namespace {

Status WrongItem(std::string_view item, std::string_view what) {
  return {ErrorKind::kUsage, StrCat("--speed: '", item, "': ", what)};
}

// The position of the first comma outside of brackets from `at` on, or the end.
std::size_t FindItemEnd(std::string_view text, std::size_t at) {
  for (bool inside = false; at < text.size(); ++at) {
    if (text[at] == '[') inside = true;
    if (text[at] == ']') inside = false;
    if (text[at] == ',' && !inside) break;
  }
  return at;
}

// The only host of a run that matches `name`. kConfig: none or more than one does.
Result<std::string_view> FindHost(std::string_view name, const std::set<std::string_view>& hosts) {
  if (const auto exact = hosts.find(name); exact != hosts.end()) return *exact;
  std::string_view match;
  for (const std::string_view host : hosts) {
    if (!IsSameHost(host, name)) continue;
    if (!match.empty()) {
      return Status(ErrorKind::kConfig,
                    StrCat("--speed: expected the name of one host, found ", name, ", which is ",
                           match, " and ", host, ": give its domain"));
    }
    match = host;
  }
  if (!match.empty()) return match;
  return Status(ErrorKind::kConfig,
                StrCat("--speed names host ", name, ", on which no rank runs: expected one of ",
                       hosts.size(), " hosts, the first of which is ", *hosts.begin()));
}

}  // namespace

Result<SpeedFlag> ParseSpeedFlag(std::string_view text) {
  if (text == "measured") return SpeedFlag{.measured = true, .hosts = {}};
  SpeedFlag flag;
  std::set<std::string> named;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = FindItemEnd(text, at);
    const std::string_view item = text.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = item.rfind(':');
    if (colon == std::string_view::npos) {
      return WrongItem(item, "expected HOSTS:SPEED, as n[1-20]:1, or 'measured' alone");
    }
    const Result<double> speed = ParseSpeed(item.substr(colon + 1));
    if (!speed.ok()) return WrongItem(item, speed.status().message());
    auto hosts = ExpandHostlist(item.substr(0, colon));
    if (!hosts.ok()) return WrongItem(item, hosts.status().message());
    for (std::string& host : *hosts) {
      if (!named.insert(host).second)
        return WrongItem(item, StrCat("host ", host, " is given twice"));
      flag.hosts.push_back({std::move(host), *speed});
    }
  }
  return flag;
}

Result<std::vector<double>> RankSpeeds(const SpeedFlag& flag,
                                       std::span<const std::string> host_of) {
  std::vector<double> speeds;
  if (flag.measured) return speeds;
  const std::set<std::string_view> hosts(host_of.begin(), host_of.end());
  std::map<std::string_view, const HostSpeed*> named;  // by host of the run
  for (const HostSpeed& one : flag.hosts) {
    GACCD_ASSIGN_OR_RETURN(const std::string_view host, FindHost(one.host, hosts));
    const auto [before, is_new] = named.try_emplace(host, &one);
    if (is_new) continue;
    return Status(ErrorKind::kConfig, StrCat("--speed: expected host ", host, " once, found it as ",
                                             before->second->host, " and as ", one.host));
  }
  for (const std::string& host : host_of) {
    const auto host_speed = named.find(host);
    speeds.push_back(host_speed == named.end() ? 1.0 : host_speed->second->speed);
  }
  return speeds;
}

Result<std::vector<double>> RankSpeedsByNode(const SpeedFlag& flag, std::int64_t nodes,
                                             std::int64_t ranks_per_node) {
  std::vector<double> speeds;
  if (flag.measured) return speeds;
  if (std::ssize(flag.hosts) > nodes) {
    return Status(ErrorKind::kConfig,
                  StrCat("--speed: expected at most ", nodes, " hosts, as many as nodes, found ",
                         flag.hosts.size()));
  }
  // Checked before the allocation: neither count is limited elsewhere.
  constexpr std::int64_t kMaxRanks = std::int64_t{1} << 24;
  if (nodes > kMaxRanks / ranks_per_node) {
    return Status(ErrorKind::kConfig, StrCat("--speed: expected at most ", kMaxRanks,
                                             " ranks, found ", nodes, " nodes x ", ranks_per_node));
  }
  for (const HostSpeed& one : flag.hosts) {
    speeds.insert(speeds.end(), static_cast<std::size_t>(ranks_per_node), one.speed);
  }
  speeds.resize(static_cast<std::size_t>(nodes * ranks_per_node), 1.0);
  return speeds;
}

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr Unit kUnits[] = {{"B", 1},        {"kB", 1e3},    {"KB", 1e3},     {"MB", 1e6},
                           {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
                           {"GiB", 0x1p30}, {"TiB", 0x1p40}};

Status WrongMemory(std::string_view text) {
  return {
      ErrorKind::kUsage,
      StrCat("expected a size with its unit, as 80GB (10^9) or 75GiB (2^30), found '", text, "'")};
}

}  // namespace

Result<std::int64_t> ParseMemory(std::string_view text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  if (error != std::errc()) return WrongMemory(text);
  std::string_view name(end, last);
  if (name.starts_with(' ')) name.remove_prefix(1);
  const auto* const unit = std::ranges::find(kUnits, name, &Unit::name);
  if (unit == std::end(kUnits)) return WrongMemory(text);
  const double bytes = number * unit->bytes;
  if (!(bytes >= 1 && bytes < 0x1p63)) return WrongMemory(text);
  return static_cast<std::int64_t>(bytes);
}

}  // namespace gaccd
