#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/node_share.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/data/dataset_util.h"

namespace gaccd {
namespace {

class CsvTest : public testing::Test {
 protected:
  CsvSpec Source(std::string_view text, std::int64_t targets = 1, std::int64_t classes = 0) {
    return {folder_.Write("table.csv", text), targets, classes};
  }
  std::string Error(std::string_view text, std::int64_t targets = 1, std::int64_t classes = 0) {
    return Refused(ErrorKind::kData, Source(text, targets, classes));
  }
  TempFolder folder_;
};

TEST_F(CsvTest, ReadsFeaturesAndVectors) {
  const auto dataset = Opened(Source("1,2.5,-3,4e-1\n5, 6 ,7,8\n", 2), {.scale = 2});
  EXPECT_EQ(dataset->size(), 2);
  const Batch batch = Gather(*dataset, {1, 0});
  EXPECT_THAT(batch.features, ElementsAre(10.F, 12.F, 2.F, 5.F));
  EXPECT_THAT(batch.targets, ElementsAre(7.F, 8.F, -3.F, 0.4F));
}

TEST_F(CsvTest, ReadsLabelsAfterHeading) {
  const auto dataset = Opened(Source("\xEF\xBB\xBFheight,\"kind\"\r\n1.5,2\r\n\r\n2.5,0", 1, 3));
  const Batch batch = Gather(*dataset, {0, 1});
  EXPECT_THAT(batch.features, ElementsAre(1.5F, 2.5F));
  EXPECT_THAT(batch.labels, ElementsAre(2, 0));
}

TEST_F(CsvTest, HeadingIsALineWithoutNumbers) {
  for (const std::string heading :
       {"身高,体重", ",height", "_age,_kind", "height,", "\"a, b\",\"c\"", "NA,kind", "+,.", "é,ß",
        "1st,2nd", "\n \na,b", "(x),[y]", "nano,info"}) {
    const auto dataset = Opened(Source(StrCat(heading, "\n1.5,2\n2.5,0\n")));
    EXPECT_THAT(Gather(*dataset, {0, 1}).features, ElementsAre(1.5F, 2.5F)) << heading;
  }
  for (const std::string record : {"\"1.5\",\"2\"", "+1.5,2", "1.5,+2", " \"1.5\" , 2"}) {
    const auto dataset = Opened(Source(StrCat(record, "\n2.5,0\n")));
    EXPECT_THAT(Gather(*dataset, {0, 1}).features, ElementsAre(1.5F, 2.5F)) << record;
  }
}

// Other ranks may wait for the one that reads.
TEST_F(CsvTest, TicksWhileReading) {
  int ticks = 0;
  NodeShare share = NodeShare::Leader([&] {
    ++ticks;
    return Status::Ok();
  });
  EXPECT_THAT(OpenDataset(Source("1,x\n"), {}, {}, &share),
              IsError(ErrorKind::kData, "column 2: expected a number"));
  EXPECT_EQ(ticks, 1);
  NodeShare gone = NodeShare::Leader([] { return Status(ErrorKind::kUnavailable, "gone"); });
  EXPECT_THAT(OpenDataset(Source("1,2\n"), {}, {}, &gone),
              IsError(ErrorKind::kUnavailable, "gone"));
}

// The training data is a table of this text, the evaluation data one of the other.
class CsvNamesTest : public CsvTest {
 protected:
  Result<TrainingData> Open(const std::string& train, const std::string& eval) {
    job_.data.train = CsvSpec{.path = folder_.Write("train.csv", train)};
    job_.data.eval = CsvSpec{.path = folder_.Write("eval.csv", eval)};
    return OpenTrainingData(job_);
  }
  std::string Why(const std::string& train, const std::string& eval) {
    const auto opened = Open(train, eval);
    EXPECT_THAT(opened, HasKind(ErrorKind::kData));
    return opened.status().message();
  }
  Job job_;
};

TEST_F(CsvNamesTest, MatchesColumnsByName) {
  const std::string train = "age,height,kind\n1,2,3\n";
  for (const std::string& same :
       {train, std::string("4,5,6\n"), std::string("kind,\"height\",age\n6,5,4\n")}) {
    const auto opened = ValueOrThrow(Open(train, same));
    const Batch batch = Gather(*opened.eval, {0});
    EXPECT_THAT(batch.features, same == train ? ElementsAre(1.F, 2.F) : ElementsAre(4.F, 5.F));
    EXPECT_THAT(batch.targets, ElementsAre(same == train ? 3.F : 6.F));
  }
  job_.data.column_name = {"kind", "age", "height"};
  EXPECT_THAT(Gather(*ValueOrThrow(Open(train, train)).train, {0}).features, ElementsAre(3.F, 1.F));
  (void)folder_.Write("a-1.csv", train);
  (void)folder_.Write("a-2.csv", "kind,height,age\n6,5,4\n");
  EXPECT_THAT(Gather(*Opened(CsvSpec{.path = folder_.Path("a-*.csv")}), {0, 1}).features,
              ElementsAre(1.F, 2.F, 4.F, 5.F));
}

TEST_F(CsvNamesTest, LeadingLabelIsNoFeature) {
  for (const std::string name : {"label", "Target", "LABELS"}) {
    const std::string table = name + ",a,b\n2,0,1\n";
    job_.data.column_name = {};
    EXPECT_THAT(Why(table, table),
                AllOf(HasSubstr(StrCat("train.csv: column 1, '", name, "', is a feature")),
                      HasSubstr("found 'b' as the last one; data.column_name")));
    EXPECT_THAT(ReadColumnNames(job_), HasKind(ErrorKind::kData));  // what a training reads first
    job_.data.column_name = {"a", "b", name};
    EXPECT_THAT(Gather(*ValueOrThrow(Open(table, table)).train, {0}).targets, ElementsAre(2.F));
    job_.data.column_name = {name, "a", "b"};
    EXPECT_THAT(Gather(*ValueOrThrow(Open(table, table)).train, {0}).targets, ElementsAre(1.F));
  }
  job_.data.column_name = {};
  for (const std::string names : {"target,label", "a,label", "class,y", "labelled,b"}) {
    EXPECT_OK(Open(names + "\n1,2\n", "3,4\n")) << names;
  }
}

TEST_F(CsvNamesTest, RefusesOtherColumnsNamingBothLists) {
  const std::string train = "age,height,kind\n1,2,3\n";
  EXPECT_THAT(
      Why(train, "age,weight,kind\n1,2,3\n"),
      AllOf(HasSubstr("eval.csv: expected the columns 'age', 'height', 'kind' in any order"),
            HasSubstr("found 'age', 'weight', 'kind'")));
  EXPECT_THAT(Why(train, "age,kind\n1,2\n"), HasSubstr("found 'age', 'kind'"));
  EXPECT_THAT(Why(train, "age,id,height,kind\n1,2,3,4\n"), HasSubstr("found 'age', 'id', "));
  EXPECT_THAT(Why("a,a,kind\n1,2,3\n", "kind,a,a\n1,2,3\n"), HasSubstr("in this order, found"));
  EXPECT_OK(Open("a,a,kind\n1,2,3\n", "a,a,kind\n1,2,3\n"));
  EXPECT_THAT(Why(train, "1,2,3,4\n"), HasSubstr("eval.csv:1: expected 3 columns, found 4"));
  EXPECT_THAT(Why("age,kind\n1,2,3\n", train), HasSubstr("train.csv:2: expected 2 columns"));
}

TEST_F(CsvNamesTest, SaysWhatATableWithoutTargetsNeeds) {
  const std::string train = "age,height,kind\n1,2,3\n";
  constexpr const char* kAdvice = "a table without targets, to predict, needs the last column with";
  EXPECT_THAT(Why(train, "height,age\n1,2\n"), HasSubstr(kAdvice));
  EXPECT_THAT(Why(train, "1,2\n"), AllOf(HasSubstr("expected 3 columns"), HasSubstr(kAdvice)));
  EXPECT_THAT(Why(train, "age,kind\n1,2\n"), Not(HasSubstr("without targets")));
  EXPECT_THAT(Why(train, train + "1,2\n"), Not(HasSubstr("without targets")));
  EXPECT_THAT(Why(train, "age\n1\n"), Not(HasSubstr("without targets")));
  EXPECT_THAT(Why("1,2,3\n1,2\n", train), Not(HasSubstr("without targets")));
}

TEST_F(CsvNamesTest, MessagesUseColumnNumbersOfFile) {
  const std::string train = "age,height,kind\n1,2,3\n";
  EXPECT_THAT(Why(train, "kind,height,age\n1,2,3\n1,2,x\n"),
              HasSubstr("eval.csv:3: column 3: expected a number, found 'x'"));
  EXPECT_THAT(Why(train, "kind,height,age\n1,2,3\ninf,2,3\n"), HasSubstr("in line 3, column 1"));
}

TEST_F(CsvNamesTest, NamesComeFromFirstTableWithNames) {
  const auto names = [this](const std::string& train, const std::string& eval) {
    job_.data.train = CsvSpec{.path = folder_.Write("train.csv", train)};
    job_.data.eval = CsvSpec{.path = folder_.Write("eval.csv", eval)};
    return ValueOrThrow(ReadColumnNames(job_));
  };
  EXPECT_THAT(names("1,2\n", "\xEF\xBB\xBF\n \n"), testing::IsEmpty());
  EXPECT_THAT(names("1,2\n", "\xEF\xBB\xBF\n\"a, \"\"b\"\"\",c\xE9\r\n1,2\n"),
              ElementsAre("a, \"b\"", "c\\xe9"));
  EXPECT_THAT(names("x,y\n", "a,b\n"), ElementsAre("x", "y"));
  EXPECT_EQ(ColumnNamesFromMetadata(DataMetadata({.column_name = {"x", "y, z"}})),
            (std::vector<std::string>{"x", "y, z"}));
  job_.data.column_name = {"k"};
  EXPECT_THAT(names("x,y\n", "a,b\n"), ElementsAre("k"));
  job_.data.column_name = {};
  (void)folder_.Write("train.csv", std::string(kMaxTextBytes, 'a'));
  EXPECT_THAT(ReadColumnNames(job_), IsError(ErrorKind::kData, "less than 1048576 bytes"));
}

TEST_F(CsvTest, LineOfNumbersIsASample) {
  EXPECT_EQ(Opened(CsvSpec{.path = folder_.Write("c.csv", "0,1,2\n4,5,6\n")})->size(), 2);
}

TEST_F(CsvTest, KeepsFirstRecordWithMissingValue) {
  EXPECT_THAT(Error("NA,2\n3,4\n"),
              HasSubstr("table.csv:1: column 1: expected a number, found 'NA'"));
  EXPECT_THAT(Error("3,n/a\n3,4\n"), HasSubstr("table.csv:1: column 2"));
  EXPECT_THAT(Error("NA,NA\n3,4\n"), HasSubstr("table.csv:1: column 1"));
  EXPECT_THAT(Error(",\n3,4\n"), HasSubstr("table.csv:1: column 1"));
  EXPECT_THAT(Error("x,1e99\n3,4\n"),
              HasSubstr("table.csv:1: column 1: expected a number, found 'x'"));
  for (const std::string record : {"nan,NaN", "nan,2", "inf,2", "-NAN,2", "\"nan\",\"2\""}) {
    EXPECT_THAT(Error(StrCat(record, "\n3,4\n")), HasSubstr("in line 1, column ")) << record;
  }
}

TEST_F(CsvTest, EscapesNonTextBytes) {
  const std::string error = Error("1,2\n3,\x1b[31m\x07\x80" + std::string(500, 'x') + "\n");
  EXPECT_THAT(error, HasSubstr(R"(found '\x1b[31m\x07)"));
  EXPECT_THAT(error, testing::Not(testing::ContainsRegex("[\x01-\x1f]")));
  EXPECT_LT(error.size(), 300U);
  EXPECT_THAT(Error("\x1f\x8b\x08,1\n"), HasSubstr("gzip"));
}

TEST_F(CsvTest, RefusesNonTables) {
  EXPECT_THAT(Error("1,2\n3,x\n"),
              HasSubstr("table.csv:2: column 2: expected a number, found 'x'"));
  EXPECT_THAT(Error("h,y\n1,2\n,4\n"), HasSubstr(":3: column 1: expected a number, found ''"));
  EXPECT_THAT(Error("1,2\n3,4,5\n"), HasSubstr(":2: expected 2 columns, found 3"));
  EXPECT_THAT(Error("rooms;price\n7;81,67\n"),
              HasSubstr("expected 1 column, found 2; the line looks as if ';' separated"));
  EXPECT_THAT(Error("a,b\n7,\"4,14\"\n"), HasSubstr("found 3; numbers have no quotes"));
  EXPECT_THAT(Error("7,\"4,14\"\n"),
              AllOf(HasSubstr("; numbers have no quotes"), Not(HasSubstr("names"))));
  EXPECT_THAT(Error(std::string("1\0,2\0,3\0\n\0,\0\n", 12)), HasSubstr("UTF-16"));
  EXPECT_THAT(Error(std::string("\x93NUMPY\1\0v\0{", 11)),
              HasSubstr("is an array of NumPy; expected text: use npy {} in place of csv {}"));
  EXPECT_THAT(Error("a,b\n1,\n"), HasSubstr("found ''; a missing value"));
  EXPECT_THAT(Error("a,b\nNA,2\n"), HasSubstr("found 'NA'; a missing value"));
  EXPECT_THAT(Error("1,2\n3\n"), HasSubstr(":2: expected 2 columns, found 1"));
  EXPECT_THAT(Error("1\n2\n"), HasSubstr("more columns than the 1 of the targets, found 1"));
  EXPECT_THAT(Error("a,b\n"), HasSubstr("at least one sample, found only names of columns"));
  EXPECT_THAT(Error("\n\n"), HasSubstr("at least one sample, found none"));
  EXPECT_THAT(Error("1,1e999\n"), HasSubstr("found '1e999'"));
}

TEST_F(CsvTest, NamesOtherSeparatorsAndWords) {
  for (const auto& [record, name] : {std::pair("1;2;3\n", "';'"),
                                     {"1,5;2,5;3\n", "';'"},
                                     {"1\t2\t3\n", "tabs"},
                                     {"1 2.5 3\n", "spaces"}}) {
    EXPECT_THAT(Error(StrCat(record, record)),
                HasSubstr(StrCat("looks as if ", name, " separated its fields")));
  }
  EXPECT_THAT(Error("x;y\nred;1\n"), HasSubstr("';'"));
  EXPECT_THAT(Error("1,cat\n", 1, 2), HasSubstr("found 'cat'; labels that are words become"));
  EXPECT_THAT(Error("0,1,label\n1,2,3\n"), HasSubstr("; a first line of names is one without"));
  EXPECT_THAT(Error("1,2\n3,x 1\n"), HasSubstr("labels that are words"));
  EXPECT_THAT(Error("1,2\n3,x 1\n"), Not(HasSubstr("a first line")));
  EXPECT_THAT(Error("1,2\nred,1\n"), HasSubstr("found 'red'; a column of words"));
  EXPECT_THAT(Error("1,0.0\n", 1, 2), HasSubstr("found '0.0'; labels have no point"));
  for (const char* other : {"1,0.5\n", "1,99999999999\n"}) {
    EXPECT_THAT(Error(other, 1, 2), Not(HasSubstr("no point"))) << other;
  }
  EXPECT_THAT(Error("1,2\n3,1e999\n"), Not(HasSubstr(";")));
}

// Of large values that differ little, f32 has the difference only once they are normalised.
TEST_F(CsvTest, NormalisesBeforeRoundingToF32) {
  const auto dataset = Opened(Source("16777217,0\n16777219.25,0\n"), {.mean = 16777216});
  EXPECT_THAT(Gather(*dataset, {0, 1}).features, ElementsAre(1.F, 3.25F));
  EXPECT_EQ(dataset->conversions(), "");
}

TEST_F(CsvTest, NamesFirstIntegerBeyondF32) {
  const CsvSpec source = Source("a,b\n16777216,1.1\n1,16777217\n16777219,0\n");
  EXPECT_EQ(Opened(source)->conversions(),
            source.path + ": 16777217 in line 3, column 2 -> 16777216 in f32");
}

TEST_F(CsvTest, FlushesNumbersBelowF32ToZero) {
  const auto dataset = Opened(Source("1e-50,-1e-46\n1e-40,2\n+1e-400,-1e-999\n"));
  EXPECT_THAT(Gather(*dataset, {0, 1, 2}).features, ElementsAre(0.F, 1e-40F, 0.F));
  EXPECT_THAT(Gather(*dataset, {0, 1, 2}).targets, ElementsAre(0.F, 2.F, 0.F));
  EXPECT_THAT(Error("1,2\n1e400,2\n"), HasSubstr("found '1e400'"));
  EXPECT_THAT(Error("1,2\n1e39,2\n"),
              HasSubstr("finite values in f32 after normalize, found inf in line 2, column 1"));
}

// pandas numbers the rows, and the columns of a table without names, unless it shall not.
TEST_F(CsvTest, IndexColumnsAreNoFeatures) {
  for (const char* heading : {",a,b", "Unnamed: 0,a,b"}) {
    EXPECT_THAT(Error(StrCat(heading, "\n7,1.5,2\n3,2.5,0\n")),
                HasSubstr("column 1 has no name and numbers the rows"));
    for (const char* other : {"0.5,1.5,2\n1,2.5,0\n", "7,1.5,2\n7,2.5,0\n", "7,1.5,2\n"}) {
      EXPECT_OK(OpenDataset(Source(StrCat(heading, "\n", other)), {}, {}));
    }
  }
  EXPECT_THAT(Error("0,1,2\n1.5,2,3\n"), HasSubstr("line 1 numbers the columns"));
  for (const char* samples : {"0,1\n1.5,2\n", "0,1,2\n1,2,3\n1,3,5\n", "0,1,2\n", "1,2,3\n5,5,5\n",
                              "a,b,c\n0,1,2\n5,5,5\n"}) {
    EXPECT_OK(OpenDataset(Source(samples), {}, {})) << samples;
  }
}

TEST_F(CsvTest, RequiresIntegerLabelsInRange) {
  EXPECT_THAT(Error("1,2\n3,4.5\n", 1, 9), HasSubstr("expected a whole number, found '4.5'"));
  EXPECT_THAT(Error("1,2\n3,9\n", 1, 9),
              HasSubstr("expected labels in [0, 9), found 9 in line 2, column 2"));
  EXPECT_THAT(Refused(ErrorKind::kConfig, Source("1,2,3\n", 2, 9)), HasSubstr("targets 2"));
}

// As a record of any other format: stopped at, or replaced.
TEST_F(CsvTest, NonFiniteValuesAreBadRecords) {
  const CsvSpec source = Source("a,b\n1,2\n\nnan,3\n5,6\n");
  EXPECT_THAT(Refused(ErrorKind::kData, source), HasSubstr("in line 4, column 1"));
  EXPECT_THAT(Error("1,2,3\n4,5,inf\n", 2), HasSubstr("in line 2, column 3"));
  const auto skipped =
      ValueOrThrow(OpenDataset(source, {}, {.policy = OnBadRecord::kSkip, .quota = 1}));
  EXPECT_EQ(skipped->bad_records().size(), 1U);
}

}  // namespace
}  // namespace gaccd
