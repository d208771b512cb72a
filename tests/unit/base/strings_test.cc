#include "collectives/base/strings.h"

#include <gtest/gtest.h>

#include <optional>

namespace gaccd {
namespace {

TEST(StringsTest, NanHasNoSign) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(StrCat(-nan, " ", static_cast<float>(-nan), " ", -1.5), "nan nan -1.5");
}

TEST(StringsTest, PrintableEscapesControlCharacters) {
  EXPECT_EQ(Printable("loss is 0.5\tok, \xC3\xA9\xF0\x9F\x99\x82"),
            "loss is 0.5\tok, \xC3\xA9\xF0\x9F\x99\x82");
  EXPECT_EQ(Printable("\x1b[2J\r\x7f\b"), "\\x1b[2J\\x0d\\x7f\\x08");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "2J"),
            "\\x9b2J")
      << "CSI in one character";
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xC2"), "\\xc2");
  EXPECT_EQ(Printable("\x1f\x8b\x08\x9b\xff"), "\\x1f\\x8b\\x08\\x9b\\xff");  // gzip
  EXPECT_EQ(Printable("\xE0\x80\x80\xED\xA0\x80\xF4\x90\x80\x80"),
            "\\xe0\\x80\\x80\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(Printable("\xE4\xB9\xA6\xE4\xB9"), "\xE4\xB9\xA6\\xe4\\xb9");
}

TEST(StringsTest, PrintableLinesEscapeLineBreaks) {
  EXPECT_EQ(Printable("name\nE2026 forged"), "name\n  E2026 forged");
  EXPECT_EQ(Printable("whole\n"), "whole\n");
  EXPECT_EQ(Printable(""), "");
}

TEST(StringsTest, PrintableTruncates) {
  EXPECT_EQ(Printable(std::string(kMaxPrintable + 5, 'x')),
            std::string(kMaxPrintable, 'x') + "... (5 more bytes)");
}

TEST(StringsTest, FewBytesAreNotZero) {
  EXPECT_EQ(Megabytes(79'249'999), "79.2 MB");
  EXPECT_EQ(Megabytes(100'000), "0.1 MB");
  EXPECT_EQ(Megabytes(99'999), "100.0 kB");
  EXPECT_EQ(Megabytes(780), "0.8 kB");
  EXPECT_EQ(Megabytes(0), "0.0 MB");
}

TEST(StringsTest, ListsMayHaveEmptyParts) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(Split("a,,b,", ','), (Parts{"a", "", "b"}));
  EXPECT_EQ(Split(",a", ','), (Parts{"", "a"}));
  EXPECT_EQ(Split("", ','), Parts{});
  EXPECT_EQ(Join(Parts{"", "a", ""}, ", "), ", a, ");
  EXPECT_EQ(Join(std::vector<int>{1, 2}, ","), "1,2");
  EXPECT_TRUE(HasPart("cpu,memory", "memory"));
  EXPECT_FALSE(HasPart("cpu,memory", "mem"));
}

TEST(StringsTest, CountsHavePlurals) {
  EXPECT_EQ(gaccd::Counted(1, "rank") + ", " + gaccd::Counted(0, "node"), "1 rank, 0 nodes");
  EXPECT_EQ(Format("%05d %.1f", 7, 0.25), "00007 0.2");
}

TEST(NumberTextTest, AcceptsCompleteNumbersOnly) {
  EXPECT_EQ(ToNumber<int>("-17"), -17);
  EXPECT_EQ(ToNumber<double>("1e3"), 1000);
  for (const char* text : {"", "+1", " 1", "1 ", "0x1", "1.0", "2147483648"}) {
    EXPECT_EQ(ToNumber<int>(text), std::nullopt) << text;
  }
  EXPECT_EQ(ToCount("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ToCount("9223372036854775808"), std::nullopt);
  EXPECT_EQ(ToCount("-0"), std::nullopt);
  EXPECT_EQ(ToNumber<double>(NumberText(0.1)), 0.1);
}

}  // namespace
}  // namespace gaccd
