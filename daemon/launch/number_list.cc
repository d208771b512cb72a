#include "daemon/launch/number_list.h"

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

}  // namespace gaccd
