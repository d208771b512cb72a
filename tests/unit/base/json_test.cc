#include "collectives/base/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace gaccd {
namespace {

TEST(JsonTest, ReadsMembersByType) {
  const auto read = Json::ParseObject(
      R"({"t":"a\nb","n":-3,"big":18446744073709551615,"r":2.5,"yes":true,"no":null,"in":{"n":4},"l":["x","y"]})");
  ASSERT_TRUE(read);
  EXPECT_EQ(*read->text("t"), "a\nb");
  EXPECT_EQ(read->integer<int>("n"), -3);
  EXPECT_EQ(read->number("n"), -3.0);
  EXPECT_EQ(read->number("r"), 2.5);
  EXPECT_EQ(read->boolean("yes"), true);
  EXPECT_EQ(read->integer<std::uint64_t>("big"), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read->integer<std::int64_t>("big"), std::nullopt) << "it does not fit";
  EXPECT_EQ(read->integer<int>("r"), std::nullopt);
  EXPECT_EQ(read->text("n"), nullptr);
  EXPECT_EQ(read->number("t"), std::nullopt);
  EXPECT_TRUE(read->Find("no")->is_null());
  EXPECT_EQ(read->Find("in")->integer<int>("n"), 4);
  EXPECT_EQ(TextsIn(*read->Find("l")), (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(TextsIn(*read->Find("t")).empty());
  EXPECT_EQ(read->Find("unknown"), nullptr);
}

TEST(JsonTest, FindsTheLastOfEqualNames) {
  EXPECT_EQ(Json::Parse(R"({"a":1,"a":2})")->integer<int>("a"), 2);
  EXPECT_EQ(Json::Parse(R"({"a":1,"a":2})")->object()->size(), 2U);
}

TEST(JsonTest, RefusesOtherThanOneValue) {
  for (const char* bad : {"", "{", "{}{}", "{\"a\":}", "{\"a\":1,}", "nul", "\"\xff\"", "1e999"}) {
    std::string error;
    EXPECT_FALSE(Json::Parse(bad, &error)) << bad;
    EXPECT_NE(error, "") << bad;
  }
  for (const char* bad : {"1", "[]", "null", "\"a\"", "[{}]"})
    EXPECT_FALSE(Json::ParseObject(bad)) << bad;
}

TEST(JsonTest, ReadsTooDeepAsNull) {
  const std::string deep(1'000'000, '[');
  EXPECT_FALSE(Json::Parse("{\"a\":" + deep));
  const auto json = Json::Parse("{\"a\":" + deep + std::string(deep.size(), ']') + ",\"b\":1}");
  ASSERT_TRUE(json);
  EXPECT_EQ(json->integer<int>("b"), 1);
  const Json* in = json->Find("a");
  int depth = 1;
  for (; in->array() != nullptr; in = &in->array()->front()) ++depth;
  EXPECT_EQ(depth, Json::kMaxDepth);
  EXPECT_TRUE(in->is_null());
}

TEST(JsonTest, ComparesByValue) {
  const auto same = [](const char* a, const char* b) { return *Json::Parse(a) == *Json::Parse(b); };
  EXPECT_TRUE(same("1", "1.0"));
  EXPECT_TRUE(same("[1,{\"a\":1,\"b\":[]}]", "[1.0,{\"b\":[],\"a\":1}]"));
  EXPECT_FALSE(same("9007199254740993", "9007199254740992"));
  EXPECT_FALSE(same("18446744073709551615", "18446744073709551614"));
  EXPECT_FALSE(same("{\"a\":1}", "{\"a\":1,\"b\":1}"));
  EXPECT_FALSE(same("[1,2]", "[2,1]"));
  EXPECT_FALSE(same("null", "false"));
  EXPECT_FALSE(same("1", "\"1\""));
}

TEST(JsonTest, DumpRoundTrips) {
  const std::string text =
      R"({"z":[1,-2,18446744073709551615,0.5,1e-05,3.0],"a":{"n":null,"t":true,"s":"\u0001é"},"e":[],"o":{}})";
  EXPECT_EQ(Json::Parse(text)->Dump(), text);
  EXPECT_EQ(Json::Parse(R"({"a":[1,{}],"b":{"c":2}})")->Dump(2),
            "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": {\n    \"c\": 2\n  }\n}");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).Dump(), "null");
}

TEST(JsonStringTest, EscapesControlCharacters) {
  EXPECT_EQ(JsonString("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(JsonString("\n\r\t"), R"("\n\r\t")");
  EXPECT_EQ(JsonString(std::string_view("\0\x01\x1f", 3)), R"("\u0000\u0001\u001f")");
}

TEST(JsonStringTest, KeepsUtf8AndReplacesOtherBytes) {
  const std::string bad = "\xEF\xBF\xBD";
  for (const std::string good : {"é", "中", "😀", "\xF4\x8F\xBF\xBF", "\xEF\xBF\xBF"}) {
    EXPECT_EQ(JsonString(good), "\"" + good + "\"");
  }
  EXPECT_EQ(JsonString("a\xFFz"), "\"a" + bad + "z\"");
  EXPECT_EQ(JsonString("\x80"), "\"" + bad + "\"");                      // no first byte
  EXPECT_EQ(JsonString("\xC3"), "\"" + bad + "\"");                      // cut short
  EXPECT_EQ(JsonString("\xC0\xAF"), "\"" + bad + bad + "\"");            // overlong /
  EXPECT_EQ(JsonString("\xE0\x80\xAF"), "\"" + bad + bad + bad + "\"");  // overlong /
  EXPECT_EQ(JsonString("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");  // surrogate
  EXPECT_EQ(JsonString("\xF4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"");
}

}  // namespace
}  // namespace gaccd
