#include "daemon/weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <limits>

#include "collectives/base/json.h"
#include "collectives/base/strings.h"
#include "daemon/weights/safetensors_header.h"
#include "tests/support/file_util.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

std::string FileBytes(std::string_view header, std::string_view data) {
  const std::uint64_t length = header.size();
  return Raw(std::span(&length, 1)) + std::string(header) + std::string(data);
}

// "name":{...} with the given offsets. (Texts are begun with StrCat: g++ 12 warns wrongly of
// "literal" + std::string.)
std::string TensorEntry(std::string_view name, std::string_view shape, int begin, int end,
                        std::string_view dtype = "F32") {
  return StrCat('"', name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape, ",\"data_offsets\":[",
                begin, ",", end, "]}");
}

Result<SafetensorsFile> Decoded(std::string_view file) {
  return DecodeSafetensors("weights", AsBytes(file));
}

std::string Refused(std::string_view file) {
  const auto decoded = Decoded(file);
  EXPECT_FALSE(decoded.ok()) << file;
  if (decoded.ok()) return "";
  EXPECT_THAT(decoded, IsError(ErrorKind::kData, "weights: "));
  return decoded.status().message();
}

const std::vector<float> kValues = {
    1.5F, -2, 3, std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::infinity(),
    6};

// A 2 x 2, a vector, a scalar-free empty tensor and strange names.
std::vector<TensorView> Tensors() {
  static constexpr std::int64_t kMatrix[] = {2, 2};
  static constexpr std::int64_t kVector[] = {1};
  static constexpr std::int64_t kEmpty[] = {0, 7};
  const std::span<const float> values(kValues);
  return {{"fc1.weight", kMatrix, values.first(4)},
          {"quote\" back\\ line\n \xc3\xa9 \xf0\x9f\x99\x82", {}, values.subspan(4, 1)},
          {"empty", kEmpty, {}},
          {"fc1.bias", kVector, values.subspan(5, 1)}};
}

TEST(SafetensorsTest, RoundTrips) {
  const TempFolder folder;
  const std::string path = folder.Path("w.safetensors");
  const auto tensors = Tensors();
  ASSERT_TRUE(WriteSafetensors(path, tensors, 0640).ok());
  const auto mode = [&] { return std::filesystem::status(path).permissions(); };
  EXPECT_EQ(mode(), std::filesystem::perms(0640));
  ASSERT_TRUE(WriteSafetensors(path, tensors).ok());
  EXPECT_EQ(mode(), std::filesystem::perms(0600)) << "for their user only";
  const auto file = ValueOrThrow(ReadSafetensors(path));
  EXPECT_EQ(file.metadata.at("format"), "pt");
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const TensorView& expected : tensors) {
    const auto found = std::find_if(file.tensors.begin(), file.tensors.end(),
                                    [&](const auto& t) { return t.name == expected.name; });
    ASSERT_NE(found, file.tensors.end()) << expected.name;
    EXPECT_TRUE(std::equal(expected.shape.begin(), expected.shape.end(), found->shape.begin(),
                           found->shape.end()));
    EXPECT_TRUE(std::equal(expected.values.begin(), expected.values.end(), found->values.begin(),
                           found->values.end()));
  }
}

TEST(SafetensorsTest, AlignsValuesToEightBytes) {
  const TempFolder folder;
  const std::string path = folder.Path("w.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, Tensors()).ok());
  std::ifstream file(path, std::ios::binary);
  std::uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), sizeof length);
  EXPECT_EQ(length % 8, 0U);
}

TEST(SafetensorsTest, ReplacesFileAtomically) {
  const TempFolder folder;
  const std::string path = folder.Write("w.safetensors", "old");
  const float value = 1;
  const std::int64_t two[] = {2};
  const TensorView wrong[] = {{"a", two, std::span(&value, 1)}};
  EXPECT_FALSE(WriteSafetensors(path, wrong).ok());
  EXPECT_EQ(std::filesystem::file_size(path), 3U);
  ASSERT_TRUE(WriteSafetensors(path, Tensors()).ok());
  EXPECT_TRUE(ReadSafetensors(path).ok());
  // Nothing is left next to it.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.Path("")), {}), 1);
}

TEST(SafetensorsTest, ReportsWriteError) {
  const TempFolder folder;
  EXPECT_THAT(WriteSafetensors(folder.Path("no/w"), Tensors()),
              IsError(ErrorKind::kIo, "No such file"));
  std::filesystem::create_directory(folder.Path("dir"));
  EXPECT_THAT(WriteSafetensors(folder.Path("dir"), Tensors()),
              HasMessage(HasSubstr("found a folder")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.Path("")), {}), 1);
  EXPECT_THAT(WriteSafetensors("/dev/full/w", Tensors()), HasMessage(HasSubstr("Not a directory")));

  const float value = 1;
  const std::span<const float> values(&value, 1);
  const auto refused = [&](std::initializer_list<TensorView> tensors) {
    const Status status = WriteSafetensors(folder.Path("w"), tensors);
    EXPECT_THAT(status, HasKind(ErrorKind::kInternal));
    return status.message();
  };
  EXPECT_THAT(refused({{"a", {}, values}, {"a", {}, values}}), HasSubstr("twice"));
  EXPECT_THAT(refused({{"\xff", {}, values}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({{"__metadata__", {}, values}}), HasSubstr("__metadata__"));
  EXPECT_THAT(refused({{"a", {}, {}}}), AllOf(HasSubstr("expected 1"), HasSubstr("found 0")));
}

TEST(SafetensorsTest, ReadsFilesOfOtherWriters) {
  const std::string data = Raw(std::span<const float>(kValues));
  const auto file = ValueOrThrow(Decoded(FileBytes(
      std::string("{ \"b\\u00e9\\ud83d\\ude42\" : {\"shape\" : [ 2 , 2 ],\t\"data_offsets\":"
                  "[8, 24],\n\"dtype\":\"F32\"} , ") +
          TensorEntry("a", "[2]", 0, 8) +
          ", \"__metadata__\": {\"x\": \"1\", \"y\": \"\\/\\b\"}}   ",
      data)));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_THAT(file.tensors[0].values, ElementsAre(1.5F, -2));
  EXPECT_EQ(file.tensors[1].name, "b\xc3\xa9\xf0\x9f\x99\x82");
  EXPECT_THAT(file.tensors[1].shape, ElementsAre(2, 2));
  EXPECT_EQ(file.metadata.at("y"), "/\b");
  EXPECT_TRUE(Decoded(FileBytes("{}", "")).ok());
}

TEST(SafetensorsTest, RefusesBadLengths) {
  for (const char* none : {"", "1234567", "PK\3\4 a zip file", "some other text"}) {
    EXPECT_THAT(Refused(none), HasSubstr("not a safetensors file: expected"));
  }
  const std::uint64_t lengths[] = {3, 16 << 20, (16 << 20) + 1, 1ULL << 63, ~0ULL};
  for (const std::uint64_t length : lengths) {
    EXPECT_THAT(Refused(Raw(std::span(&length, 1)) + "{}"), HasSubstr(StrCat(length)));
  }
  const std::string good = FileBytes(StrCat("{") + TensorEntry("a", "[2]", 0, 8) + "}", "12345678");
  ASSERT_TRUE(Decoded(good).ok());
  for (std::size_t length = 0; length < good.size(); ++length) {
    (void)Refused(good.substr(0, length));
  }
  EXPECT_THAT(Refused(good + "x"), AllOf(HasSubstr("take 8"), HasSubstr("found 9")));
}

TEST(SafetensorsTest, RefusesBadLayouts) {
  const auto refused = [](std::string_view entries, std::size_t bytes) {
    return Refused(FileBytes(StrCat("{", entries, "}"), std::string(bytes, 'x')));
  };
  EXPECT_THAT(refused(TensorEntry("a", "[2]", 0, 8) + "," + TensorEntry("b", "[2]", 4, 12), 12),
              AllOf(HasSubstr("'b'"), HasSubstr("byte 8"), HasSubstr("found 4 (they overlap)")));
  EXPECT_THAT(refused(TensorEntry("a", "[2]", 0, 8) + "," + TensorEntry("b", "[2]", 12, 20), 20),
              HasSubstr("found 12 (a hole)"));
  EXPECT_THAT(refused(TensorEntry("a", "[2]", 4, 12), 12), HasSubstr("found 4 (a hole)"));
  EXPECT_THAT(refused(TensorEntry("a", "[2]", 0, 8), 12),
              AllOf(HasSubstr("take 8"), HasSubstr("12")));
  EXPECT_THAT(refused(TensorEntry("a", "[3]", 0, 12), 8),
              AllOf(HasSubstr("take 12"), HasSubstr("8")));
  EXPECT_THAT(refused(TensorEntry("a", "[3]", 0, 8), 8),
              AllOf(HasSubstr("expected 12"), HasSubstr("8]")));
  EXPECT_THAT(refused(TensorEntry("a", "[2]", 8, 0), 8), HasSubstr("data_offsets [8, 0]"));
  EXPECT_THAT(refused(TensorEntry("a", "[4294967296,4294967296]", 0, 8), 8), HasSubstr("63 bits"));
  EXPECT_THAT(refused(TensorEntry("a", "[2]", 0, 8, "BF16"), 8), HasSubstr("expected 4 bytes"));
}

TEST(SafetensorsTest, NamesTensorsOfOtherTypes) {
  const auto file = ValueOrThrow(Decoded(FileBytes(
      StrCat("{", TensorEntry("ids", "[1,2]", 0, 16, "I64"), ",", TensorEntry("a", "[1]", 16, 20),
             ",", TensorEntry("b", "[6]", 20, 26, "F8_E4M3"), ",",
             TensorEntry("c", "[1]", 26, 34, "C64"), "}"),
      std::string(34, '\0'))));
  ASSERT_EQ(file.tensors.size(), 1U);
  EXPECT_EQ(file.tensors[0].name, "a");
  ASSERT_EQ(file.others.size(), 3U);
  EXPECT_EQ(file.others[0].name, "ids");
  EXPECT_EQ(file.others[0].dtype, "I64");
  EXPECT_EQ(file.others[1].dtype, "F8_E4M3");
  EXPECT_EQ(file.others[2].dtype, "C64") << "of a size that is not known here";
}

TEST(SafetensorsTest, RefusesBadHeaders) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "not a safetensors file"},
      {" {}", "not a safetensors file"},
      {"[]", "then '{', found the length 2 and '['"},
      {"{}x", "only spaces"},
      {std::string("{}\0", 3), "only spaces"},
      {std::string("{}\0}", 4), "and no NUL"},
      {"{\"a\":1}", "expected '{'"},
      {"{\"a\":{}}", "\"dtype\" in the header for 'a', found"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", "\"data_offsets\" in the header for 'a'"},
      {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "each once"},
      {"{\"a\":{\"colour\":\"F32\"}}", "each once"},
      {StrCat("{") + TensorEntry("a", "[1]", 0, 4) + "," + TensorEntry("a", "[1]", 0, 4) + "}",
       "a new name"},
      {StrCat("{") + TensorEntry("a", "[1]", 0, 4) + ",}",
       "no JSON in the header: parse error at line 1, column"},
      {StrCat("{") + TensorEntry("a", "[1]", 0, 4) + " " + TensorEntry("b", "[1]", 0, 4) + "}",
       "no JSON in the header: parse error at line 1, column"},
      {StrCat("{") + TensorEntry("a", "[1.0]", 0, 4) + "}", "whole number"},
      {StrCat("{") + TensorEntry("a", "[-1]", 0, 4) + "}", "whole number"},
      {StrCat("{") + TensorEntry("a", "[01]", 0, 4) + "}",
       "no JSON in the header: parse error at line 1, column"},
      {StrCat("{") + TensorEntry("a", "[1e0]", 0, 4) + "}", "whole number"},
      {StrCat("{") + TensorEntry("a", "[99999999999999999999]", 0, 4) + "}", "63 bits"},
      {StrCat("{") + TensorEntry("a", "[,1]", 0, 4) + "}",
       "no JSON in the header: parse error at line 1, column"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1]}}", "two numbers"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,2,3]}}", "at most 2"},
      {"{\"__metadata__\":{\"a\":1}}", "__metadata__"},
      {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", "only once"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", "a new name"},
      {"{\"a", "only spaces"},
      {"{\"a\nb\":}", "control character"},
      {"{\"\\x\":}", "forbidden character after backslash"},
      {"{\"\\u12g4\":}", "4 hex digits"},
      {"{\"\\ud800\":}", "surrogate"},
      {"{\"\\udc00\":}", "surrogate"},
      {"{\"\\ud800\\u0041\":}", "surrogate"},
      {"{\"\xff\":}", "UTF-8"},
      {StrCat("{") + TensorEntry("a", "[[1]]", 0, 4) + "}", "found [1]"},
      {"{\"a\":{\"dtype\":{},\"shape\":[1],\"data_offsets\":[0,4]}}", "found {}"},
      {StrCat("{\"a\":", std::string(100'000, '['), "}"), "no JSON"},
      {StrCat("{\"a\":", std::string(100'000, '['), std::string(100'000, ']'), "}"), "found ["},
      {StrCat("{") + TensorEntry("a", "[true]", 0, 4) + "}", "whole number"},
      {"{\"a\":\"b\"}", "expected '{'"},
  };
  for (const auto& [header, part] : cases) {
    EXPECT_THAT(Refused(FileBytes(header, "1234")), HasSubstr(part)) << header;
  }
}

TEST(SafetensorsTest, ValidatesUtf8) {
  for (const std::string_view good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80",
                                      "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const std::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xc3x", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe1\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf1\x80\x80x"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(SafetensorsTest, RefusesNonFiles) {
  const TempFolder folder;
  const auto message = [](const std::string& path) {
    const auto file = ReadSafetensors(path);
    EXPECT_THAT(file, HasKind(ErrorKind::kIo));
    return file.status().message();
  };
  EXPECT_THAT(message(folder.Path("no")), AllOf(HasSubstr("no"), HasSubstr("No such file")));
  EXPECT_THAT(message(folder.Path("")), HasSubstr("found a directory"));
  ASSERT_EQ(mkfifo(folder.Path("fifo").c_str(), 0600), 0);
  EXPECT_THAT(message(folder.Path("fifo")), HasSubstr("regular file"));
}

// Another reader and another writer of the format: Python's json and struct, and the package itself
// where it is installed.
TEST(SafetensorsTest, AgreesWithPython) {
  const TempFolder folder;
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
  const std::string path = folder.Path("w.safetensors");
  ASSERT_TRUE(WriteSafetensors(path, Tensors()).ok());
  const std::string script = folder.Write("check.py", R"py(
import json, struct, sys
path, copy = sys.argv[1:]
data = open(path, "rb").read()
(length,) = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + length].decode("utf-8"))
assert header.pop("__metadata__") == {"format": "pt"}
tensors = {}
for name, entry in header.items():
    begin, end = entry["data_offsets"]
    assert entry["dtype"] == "F32", entry
    values = data[8 + length:][begin:end]
    tensors[name] = (entry["shape"], list(struct.unpack("<%df" % (len(values) // 4), values)))
assert tensors["fc1.weight"] == ([2, 2], [1.5, -2.0, 3.0, 2.0 ** -149]), tensors
assert tensors['quote" back\\ line\n \u00e9 \U0001f642'] == ([], [float("inf")]), tensors
assert tensors["empty"] == ([0, 7], []), tensors
assert tensors["fc1.bias"] == ([1], [6.0]), tensors
text = json.dumps({"b\u20ac": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]}}).encode()
open(copy, "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<2f", 0.25, -8))
try:
    import safetensors.numpy
except ImportError:
    print("the Python package safetensors is not installed: only the json check ran")
else:
    loaded = safetensors.numpy.load_file(path)
    assert {k: (list(v.shape), v.ravel().tolist()) for k, v in loaded.items()} == tensors
)py");
  const std::string copy = folder.Path("copy.safetensors");
  ASSERT_EQ(std::system(StrCat("python3 ", script, " ", path, " ", copy).c_str()), 0);
  const auto file = ValueOrThrow(ReadSafetensors(copy));
  EXPECT_EQ(file.tensors.at(0).name, "b\xe2\x82\xac");
  EXPECT_THAT(file.tensors[0].shape, ElementsAre(1, 2));
  EXPECT_THAT(file.tensors[0].values, ElementsAre(0.25F, -8));
}

}  // namespace
}  // namespace gaccd
