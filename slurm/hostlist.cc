#include "slurm/hostlist.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr std::size_t kMaxDigits = 18;  // always fits 63 bits
constexpr std::size_t kMaxNameLength = 255;

struct Range {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::size_t width = 0;  // of the first number, leading zeros counted

  [[nodiscard]] std::uint64_t size() const { return last - first + 1; }
};

// A piece of a name: fixed text, or (text empty) one of the numbers of the ranges.
struct Piece {
  std::string_view text;
  std::vector<Range> ranges;
};

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

Status Bad(std::string_view list, const std::string& what) {
  constexpr std::size_t kShown = 200;
  const std::string_view cut = list.size() > kShown ? "..." : "";
  return {ErrorKind::kConfig, StrCat("host list \"", list.substr(0, kShown), cut, "\": ", what)};
}

std::optional<std::uint64_t> ParseIndex(std::string_view text) {
  if (text.size() > kMaxDigits) return std::nullopt;
  const auto value = ToCount(text);
  if (!value) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::optional<Range> ParseRange(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = ParseIndex(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : ParseIndex(text.substr(dash + 1));
  if (!first || !last || *last < *first) return std::nullopt;
  return Range{*first, *last, std::min(dash, text.size())};
}

// "1-3,07", the inside of a bracket.
Result<std::vector<Range>> ParseRanges(std::string_view list, std::string_view inside) {
  std::vector<Range> ranges;
  for (std::size_t at = 0; at <= inside.size();) {
    const std::size_t end = std::min(inside.find(',', at), inside.size());
    const std::string_view text = inside.substr(at, end - at);
    const auto range = ParseRange(text);
    if (!range) {
      return Bad(list, StrCat("expected a range such as 1-3 or 07, found \"", text, "\""));
    }
    ranges.push_back(*range);
    at = end + 1;
  }
  return ranges;
}

// One name of the list, from `at` to the comma after it; moves `at` to that comma or the end.
Result<std::vector<Piece>> ParseName(std::string_view list, std::size_t& at) {
  std::vector<Piece> pieces;
  const std::size_t start = at;
  while (at < list.size() && list[at] != ',') {
    if (list[at] == '[') {
      const std::size_t close = list.find(']', at);
      if (close == std::string_view::npos) return Bad(list, "a [ without its ]");
      GACCD_ASSIGN_OR_RETURN(auto ranges, ParseRanges(list, list.substr(at + 1, close - at - 1)));
      pieces.push_back({{}, std::move(ranges)});
      at = close + 1;
      continue;
    }
    const std::size_t text = at;
    while (at < list.size() && IsNameCharacter(list[at])) ++at;
    if (at == text) {
      return Bad(list, StrCat("unexpected character '", list[at], "' at position ", at + 1));
    }
    pieces.push_back({list.substr(text, at - text), {}});
  }
  if (at == start) return Bad(list, StrCat("an empty host name at position ", at + 1));
  return pieces;
}

// Number of hosts that the name expands to; empty if it exceeds `limit`.
std::optional<std::uint64_t> CountHosts(const std::vector<Piece>& pieces, std::uint64_t limit) {
  std::uint64_t hosts = 1;
  for (const Piece& piece : pieces) {
    if (piece.ranges.empty()) continue;
    std::uint64_t choices = 0;
    for (const Range& range : piece.ranges) {
      if (range.size() > limit - choices) return std::nullopt;
      choices += range.size();
    }
    if (choices > limit / hosts) return std::nullopt;
    hosts *= choices;
  }
  if (hosts > limit) return std::nullopt;
  return hosts;
}

void AppendPadded(std::string& name, std::uint64_t number, std::size_t width) {
  const std::string digits = std::to_string(number);
  if (digits.size() < width) name.append(width - digits.size(), '0');
  name += digits;
}

// Every combination of the pieces from `index` on, after `prefix`.
void Append(const std::vector<Piece>& pieces, std::size_t index, const std::string& prefix,
            std::vector<std::string>& hosts) {
  if (index == pieces.size()) {
    hosts.push_back(prefix);
    return;
  }
  const Piece& piece = pieces[index];
  if (piece.ranges.empty()) {
    Append(pieces, index + 1, prefix + std::string(piece.text), hosts);
    return;
  }
  for (const Range& range : piece.ranges) {
    for (std::uint64_t number = range.first; number <= range.last; ++number) {
      std::string name = prefix;
      AppendPadded(name, number, range.width);
      Append(pieces, index + 1, name, hosts);
    }
  }
}

// The length of the longest name, so that a long one is refused before it is made.
std::size_t LongestName(const std::vector<Piece>& pieces) {
  std::size_t length = 0;
  for (const Piece& piece : pieces) {
    std::size_t longest = piece.text.size();
    for (const Range& range : piece.ranges) {
      longest = std::max({longest, range.width, std::to_string(range.last).size()});
    }
    length += longest;
  }
  return length;
}

// Number of digits at the end; 0 if more than kMaxDigits.
std::size_t DigitsAtEnd(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  const std::size_t digits = last == std::string_view::npos ? name.size() : name.size() - last - 1;
  return digits <= kMaxDigits ? digits : 0;
}

// "1-3,7": the text in the brackets.
std::string Ranges(const std::set<std::uint64_t>& numbers, std::size_t width) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const std::uint64_t first = *at;
    std::uint64_t last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    if (!text.empty()) text += ',';
    AppendPadded(text, first, width);
    if (last == first) continue;
    text += '-';
    AppendPadded(text, last, width);
  }
  return text;
}

}  // namespace

Result<std::vector<std::string>> ExpandHostlist(std::string_view list, std::size_t max_hosts) {
  if (list.empty()) return Bad(list, "it is empty");
  std::vector<std::string> hosts;
  for (std::size_t at = 0; at <= list.size(); ++at) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<Piece> pieces, ParseName(list, at));
    if (!CountHosts(pieces, max_hosts - hosts.size())) {
      return Bad(list, StrCat("more than ", max_hosts, " hosts"));
    }
    if (const std::size_t length = LongestName(pieces); length > kMaxNameLength) {
      return Bad(list, StrCat("a host name of ", length, " characters, at most ", kMaxNameLength));
    }
    Append(pieces, 0, "", hosts);
  }
  return hosts;
}

std::string CompressHostlist(const std::vector<std::string>& hosts) {
  using Family = std::pair<std::string, std::size_t>;  // prefix, digits
  std::set<Family> padded;  // families with zero-padded numbers: all have this many digits
  for (const std::string& host : hosts) {
    const std::size_t digits = DigitsAtEnd(host);
    const std::size_t prefix = host.size() - digits;
    if (digits > 1 && host[prefix] == '0') padded.emplace(host.substr(0, prefix), digits);
  }
  std::map<Family, std::set<std::uint64_t>> families;
  std::set<std::string> plain;
  for (const std::string& host : hosts) {
    const std::size_t digits = DigitsAtEnd(host);
    if (digits == 0) {
      plain.insert(host);
      continue;
    }
    Family family(host.substr(0, host.size() - digits), digits);
    if (!padded.contains(family)) family.second = 0;
    families[family].insert(
        *ToNumber<std::uint64_t>(std::string_view(host).substr(host.size() - digits)));
  }
  std::string text;
  const auto add = [&text](const std::string& part) {
    text += StrCat(text.empty() ? "" : ",", part);
  };
  for (const auto& [family, numbers] : families) {
    const std::string ranges = Ranges(numbers, family.second);
    add(numbers.size() == 1 ? family.first + ranges : StrCat(family.first, "[", ranges, "]"));
  }
  for (const std::string& host : plain) add(host);
  return text;
}

bool IsSameHost(std::string_view a, std::string_view b) {
  const auto dot_a = a.find('.');
  const auto dot_b = b.find('.');
  const bool one_has_none = dot_a == std::string_view::npos || dot_b == std::string_view::npos;
  return a == b || (one_has_none && a.substr(0, dot_a) == b.substr(0, dot_b));
}

}  // namespace gaccd
