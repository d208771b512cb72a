#include "daemon/config/flat_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace gaccd {
namespace {

TEST(FlatJsonTest, NumbersRoundTrip) {
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

TEST(JsonObjectTest, WritesListsOfIntegers) {
  JsonObject out;
  const std::vector<std::int64_t> values = {7, -6, std::numeric_limits<std::int64_t>::max()};
  out("values", std::span<const std::int64_t>(values));
  out("none", std::span<const std::int64_t>());
  EXPECT_EQ(out.Finish(), R"({"values":[7,-6,9223372036854775807],"none":[]})");
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
  EXPECT_EQ(out.Finish(), R"({"v":1,"ok":true,"ratio":3e-04,"long":"12345...","mode":"exact"})");
  EXPECT_EQ(JsonObject().Finish(), "{}");
}

}  // namespace
}  // namespace gaccd
