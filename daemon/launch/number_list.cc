#include "daemon/launch/number_list.h"

#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// The end of the longest arithmetic sequence that starts at `begin`.
std::size_t FindSequenceEnd(const std::vector<std::int64_t>& numbers, std::size_t begin) {
  std::size_t end = begin + 1;
  while (end < numbers.size() && (end == begin + 1 || numbers[end] - numbers[end - 1] ==
                                                          numbers[begin + 1] - numbers[begin])) {
    ++end;
  }
  return end;
}

// With at least `width` digits.
std::string Padded(std::int64_t number, std::size_t width) {
  std::string text = StrCat(number);
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

// Number of digits at the end; at most 18, so that they fit into 63 bits.
std::size_t DigitsAtEnd(std::string_view name) {
  const std::size_t last = name.find_last_not_of("0123456789");
  const std::size_t digits = last == std::string_view::npos ? name.size() : name.size() - last - 1;
  return digits <= 18 ? digits : 0;
}

// "1-3,7": the text in the brackets.
std::string Ranges(const std::set<std::int64_t>& numbers, std::size_t width) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const std::int64_t first = *at;
    std::int64_t last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    text += StrCat(text.empty() ? "" : ",", Padded(first, width));
    if (last > first) text += StrCat("-", Padded(last, width));
  }
  return text;
}

}  // namespace

std::string NumberList(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = FindSequenceEnd(numbers, begin);
    const bool neighbours = end > begin + 1 && numbers[begin + 1] == numbers[begin] + 1;
    // Two numbers far apart are not a sequence; the second may begin one.
    if (!neighbours && end - begin < 3) end = begin + 1;
    text += StrCat(text.empty() ? "" : ",", numbers[begin]);
    if (end > begin + 1) text += StrCat("-", numbers[end - 1]);
    if (end > begin + 1 && !neighbours) text += StrCat(":", numbers[begin + 1] - numbers[begin]);
    begin = end;
  }
  return text;
}

std::string HostList(const std::vector<std::string>& hosts) {
  using Family = std::pair<std::string, std::size_t>;  // prefix, digits
  std::set<Family> padded;  // families with zero-padded numbers: all have this many digits
  for (const std::string& host : hosts) {
    const std::size_t digits = DigitsAtEnd(host);
    const std::size_t prefix = host.size() - digits;
    if (digits > 1 && host[prefix] == '0') padded.emplace(host.substr(0, prefix), digits);
  }
  std::map<Family, std::set<std::int64_t>> families;
  std::set<std::string> plain;
  for (const std::string& host : hosts) {
    const std::size_t digits = DigitsAtEnd(host);
    if (digits == 0) {
      plain.insert(host);
      continue;
    }
    Family family(host.substr(0, host.size() - digits), digits);
    if (!padded.contains(family)) family.second = 0;
    families[family].insert(std::stoll(host.substr(host.size() - digits)));
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

}  // namespace gaccd
