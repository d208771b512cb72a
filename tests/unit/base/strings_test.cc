#include "collectives/base/strings.h"

#include <gtest/gtest.h>

namespace gaccd {
namespace {

TEST(StringsTest, PrintableShowsWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("loss is 0.5\tok, \xC3\xA9\xF0\x9F\x99\x82"),
            "loss is 0.5\tok, \xC3\xA9\xF0\x9F\x99\x82");
  EXPECT_EQ(Printable("\x1b[2J\r\x7f\b"), "\\x1b[2J\\x0d\\x7f\\x08");
  EXPECT_EQ(Printable("\xC2\x9B"
                      "2J"),
            "\\x9b2J")
      << "CSI in one character";
  EXPECT_EQ(Printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xC2"), "\xC2");
}

TEST(StringsTest, PrintableLinesCannotBeginAnew) {
  EXPECT_EQ(Printable("name\nE2026 forged"), "name\n  E2026 forged");
  EXPECT_EQ(Printable("whole\n"), "whole\n");
  EXPECT_EQ(Printable(""), "");
}

TEST(StringsTest, PrintableIsCut) {
  EXPECT_EQ(Printable(std::string(kMaxPrintable + 5, 'x')),
            std::string(kMaxPrintable, 'x') + "... (5 more bytes)");
}

}  // namespace
}  // namespace gaccd
