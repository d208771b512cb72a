#include "daemon/config/flat_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace gaccd {
namespace {

TEST(FlatJsonTest, NumbersStayWhatTheyAre) {
  proto::Plan plan;
  EXPECT_EQ(FlatJson(plan), "{}");
  plan.set_nodes(std::numeric_limits<std::int64_t>::max());
  plan.set_world(0);
  plan.set_micro_batch(-1);
  plan.set_ratio(1.28);
  plan.set_error_ratio(0.1 + 0.2);
  plan.set_lr_factor(1e300);
  EXPECT_EQ(FlatJson(plan),
            R"({"nodes":9223372036854775807,"world":0,"micro_batch":-1,"ratio":1.28,)"
            R"("error_ratio":0.30000000000000004,"lr_factor":1e+300})");
}

TEST(FlatJsonTest, NanAndInfinityAreNull) {
  proto::Plan plan;
  plan.set_ratio(std::numeric_limits<double>::quiet_NaN());
  plan.set_error_ratio(std::numeric_limits<double>::infinity());
  plan.set_lr_factor(-std::numeric_limits<double>::infinity());
  EXPECT_EQ(FlatJson(plan), R"({"ratio":null,"error_ratio":null,"lr_factor":null})");
}

TEST(FlatJsonTest, OtherScalars) {
  proto::Data data;
  data.set_shuffle(true);
  EXPECT_EQ(FlatJson(data), R"({"shuffle":true})");
  proto::Batch batch;
  batch.set_rounding(proto::Batch::NEAREST);
  EXPECT_EQ(FlatJson(batch), R"({"rounding":"NEAREST"})");
  proto::Job job;
  job.set_seed(std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(FlatJson(job), R"({"seed":18446744073709551615})");
  job.Clear();
  job.mutable_batch();  // not flat: visible as null, never invalid JSON
  EXPECT_EQ(FlatJson(job), R"({"batch":null})");
}

TEST(JsonObjectTest, WritesKeyByKey) {
  JsonObject out;
  out("v", 1);
  out("ok", true);
  out("ratio", 3e-4);
  out.Text("none", "", 9);
  out.NotZero("zero", 0);
  out("unset", std::optional<double>());
  out.Text("long", "123456789", 8);
  proto::Plan plan;
  plan.set_mode("exact");
  AppendFields(plan, out);
  EXPECT_EQ(out.Take(), R"({"v":1,"ok":true,"ratio":3e-04,"long":"12345...","mode":"exact"})");
  EXPECT_EQ(JsonObject().Take(), "{}");
}

TEST(JsonMembersTest, KeepsTextsNumbersAndBooleans) {
  const auto read = JsonMembers::Parse(
      R"({"t":"a\nb","n":-3,"big":18446744073709551615,"r":2.5,"yes":true,"no":null,"in":{"n":4},"l":[1]})");
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
  for (const char* left_out : {"no", "in", "l", "unknown"}) EXPECT_FALSE(read->contains(left_out));
}

TEST(JsonMembersTest, TheLastOfEqualNamesCounts) {
  EXPECT_EQ(JsonMembers::Parse(R"({"a":1,"a":2})")->integer<int>("a"), 2);
  EXPECT_FALSE(JsonMembers::Parse(R"({"a":1,"a":[]})")->contains("a"));
  EXPECT_FALSE(JsonMembers::Parse(R"({"a":1,"a":null})")->contains("a"));
}

TEST(JsonMembersTest, AnythingButOneObjectIsRefused) {
  for (const char* bad :
       {"", "1", "[]", "null", "\"a\"", "{", "{}{}", "{\"a\":}", "{\"a\":1,}", "[{}]"}) {
    EXPECT_FALSE(JsonMembers::Parse(bad)) << bad;
  }
  const std::string deep(1'000'000, '[');
  EXPECT_FALSE(JsonMembers::Parse("{\"a\":" + deep));
  const auto whole =
      JsonMembers::Parse("{\"a\":" + deep + std::string(deep.size(), ']') + ",\"b\":1}");
  ASSERT_TRUE(whole) << "no stack is used for what is left out";
  EXPECT_EQ(whole->integer<int>("b"), 1);
}

TEST(JsonStringTest, EscapesControlCharacters) {
  EXPECT_EQ(JsonString("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(JsonString("\n\r\t"), R"("\n\r\t")");
  EXPECT_EQ(JsonString(std::string_view("\0\x01\x1f", 3)), R"("\u0000\u0001\u001f")");
}

TEST(JsonStringTest, KeepsUtf8AndReplacesTheRest) {
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
