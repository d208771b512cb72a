#include "daemon/engine/update_program.h"

#include <gtest/gtest.h>

namespace gaccd {
namespace {

Plan MakePlan(std::int64_t ranks, std::int64_t micro, std::int64_t target) {
  const auto plan = Plan::Make(
      {.nodes = 1, .gpus_per_node = ranks, .micro_batch = micro, .target_batch = target});
  EXPECT_TRUE(plan.ok());
  return *plan;
}

TEST(StepProgramTest, PlainAccumulationReducesOnceAfterAllMicroSteps) {
  const UpdateProgram program = PlainAccumulation(MakePlan(3, 4, 25));
  const std::vector<Instruction> expected = {
      {InstructionKind::kMicroStep, 0}, {InstructionKind::kMicroStep, 1},
      {InstructionKind::kMicroStep, 2}, {InstructionKind::kReduce},
      {InstructionKind::kMeasure},      {InstructionKind::kAudit},
      {InstructionKind::kStep},         {InstructionKind::kEnd}};
  EXPECT_EQ(program.instructions, expected);
  EXPECT_EQ(program.samples, 25);
  EXPECT_EQ(program.computed, 3);
}

TEST(StepProgramTest, OneMicroBatchIsFirstAndLast) {
  const UpdateProgram program = PlainAccumulation(MakePlan(2, 4, 8));
  EXPECT_TRUE(program.is_first(program.instructions[0]));
  EXPECT_TRUE(program.is_last(program.instructions[0]));
}

TEST(StepProgramTest, ContrastiveUpdatesEncodeAllBeforeTheFirstMicroStep) {
  const UpdateProgram program =
      SelectProgramGenerator(LossKind::kContrastive, 0)(MakePlan(2, 4, 16));
  const std::vector<Instruction> expected = {
      {InstructionKind::kEncode, 0},    {InstructionKind::kEncode, 1},
      {InstructionKind::kContrast},     {InstructionKind::kMicroStep, 0},
      {InstructionKind::kMicroStep, 1}, {InstructionKind::kReduce},
      {InstructionKind::kMeasure},      {InstructionKind::kAudit},
      {InstructionKind::kStep},         {InstructionKind::kEnd}};
  EXPECT_EQ(program.instructions, expected);
  EXPECT_EQ(program.computed, 5);
  EXPECT_EQ(program.passes, 2);
  EXPECT_FALSE(program.resumable);
}

TEST(StepProgramTest, RunsSegmentForAllMicroBatchesBeforeNext) {
  const UpdateProgram program =
      SelectProgramGenerator(LossKind::kMeanSquaredError, 2)(MakePlan(3, 4, 24));
  std::vector<Instruction> expected;
  for (const std::int64_t segment : {0, 1, 2}) {
    expected.push_back({InstructionKind::kSegment, 0, segment});
    expected.push_back({InstructionKind::kSegment, 1, segment});
    if (segment < 2) expected.push_back({InstructionKind::kUpdateSum, 0, segment});
  }
  for (const auto kind : {InstructionKind::kReduce, InstructionKind::kMeasure,
                          InstructionKind::kAudit, InstructionKind::kStep, InstructionKind::kEnd}) {
    expected.push_back({kind});
  }
  EXPECT_EQ(program.instructions, expected);
  EXPECT_EQ(program.computed, 8);
  EXPECT_EQ(program.passes, 1);
  EXPECT_FALSE(program.resumable);
}

TEST(StepProgramTest, DescribesPositionByMicroStepsAndPasses) {
  const Plan plan = MakePlan(3, 4, 24);
  const UpdateProgram plain = PlainAccumulation(plan);
  EXPECT_EQ(DescribePosition(plain, 1), "after micro-step 1");
  const UpdateProgram segments = SegmentBySegment(plan, 2);
  EXPECT_EQ(DescribePosition(segments, 1), "after micro-step 1 of 2 in pass 1 of 3");
  EXPECT_EQ(DescribePosition(segments, 2), "after micro-step 2 of 2 in pass 1 of 3");
  EXPECT_EQ(DescribePosition(segments, 3), "after pass 1 of 3");
  EXPECT_EQ(DescribePosition(segments, 4), "after micro-step 1 of 2 in pass 2 of 3");
  EXPECT_EQ(DescribePosition(segments, 7), "after micro-step 1 of 2 in pass 3 of 3");
  const UpdateProgram contrastive = TwoPassContrastive(plan);
  EXPECT_EQ(DescribePosition(contrastive, 3), "after pass 1 of 2");
  EXPECT_EQ(DescribePosition(contrastive, 4), "after micro-step 1 of 2 in pass 2 of 2");
}

}  // namespace
}  // namespace gaccd
