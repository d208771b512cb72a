#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/config/fields.h"
#include "proto/field.pb.h"

namespace gaccd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;

bool IsInRange(const proto::Field& rule, double value) {
  return (!rule.has_min() || value >= rule.min()) && (!rule.has_above() || value > rule.above()) &&
         (!rule.has_max() || value <= rule.max()) && (!rule.has_below() || value < rule.below()) &&
         std::isfinite(value);
}

// Names are used in file names, keys of weights and log lines.
std::string TextProblem(const proto::Field& rule, std::string_view text) {
  constexpr std::size_t kMaxLength = 128;
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (rule.text() == proto::Field::ANY) return {};
  if (text.empty()) return rule.required() ? "is required" : "must not be empty";
  if (text.find('\0') != std::string_view::npos) return "contains a NUL character";
  if (rule.text() == proto::Field::PATH) return {};
  if (text.size() > kMaxLength) return StrCat("must have at most ", kMaxLength, " characters");
  const bool allowed = text.find_first_not_of(kAllowed) == std::string_view::npos;
  return allowed && text != "." && text != ".." ? "" : "may contain letters, digits and . _ -";
}

Status Bad(const std::string& path, std::string_view problem) {
  return {ErrorKind::kConfig, StrCat(path, ": ", problem)};
}

Status CheckMessage(const Message& message, const std::string& path);

Status CheckElement(const Message& message, const FieldDescriptor& field, int i,
                    const std::string& path) {
  const auto& read = *message.GetReflection();
  const auto number = [&](auto value) {
    const std::string problem = NumberProblem(field, static_cast<double>(value));
    return problem.empty() ? Status() : Bad(path, StrCat(problem, ", found ", value));
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return CheckMessage(read.GetRepeatedMessage(message, &field, i), path);
    case FieldDescriptor::CPPTYPE_INT64:
      return number(read.GetRepeatedInt64(message, &field, i));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number(read.GetRepeatedDouble(message, &field, i));
    default:
      return {};  // lists of other types have no rules
  }
}

Status CheckField(const Message& message, const FieldDescriptor& field, const std::string& path) {
  const auto& read = *message.GetReflection();
  if (field.is_repeated()) {
    const int size = read.FieldSize(message, &field);
    if (size == 0 && FieldRule(field).required()) return Bad(path, "is required, at least one");
    for (int i = 0; i < size; ++i) {
      GACCD_RETURN_IF_ERROR(CheckElement(message, field, i, StrCat(path, "[", i, "]")));
    }
    return {};
  }
  if (!read.HasField(message, &field)) {
    return FieldRule(field).required() ? Bad(path, "is required") : Status();
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return CheckMessage(read.GetMessage(message, &field), path);
  }
  const auto [problem, value] = ValueProblem(message, field);
  if (problem.empty()) return {};
  return Bad(path, problem == "is required" ? problem : StrCat(problem, ", found ", value));
}

Status CheckMessage(const Message& message, const std::string& path) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    GACCD_RETURN_IF_ERROR(
        CheckField(message, field, StrCat(path, path.empty() ? "" : ".", field.name())));
  }
  for (int i = 0; i < type.oneof_decl_count(); ++i) {
    const OneofDescriptor& one = *type.oneof_decl(i);
    if (!one.options().GetExtension(proto::one_required)) continue;
    if (message.GetReflection()->HasOneof(message, &one)) continue;
    std::vector<std::string> names;
    for (int j = 0; j < one.field_count(); ++j) names.push_back(one.field(j)->name());
    return Bad(path, StrCat("needs ", JoinNames(names)));
  }
  return {};
}

}  // namespace

const proto::Field& FieldRule(const google::protobuf::FieldDescriptor& field) {
  return field.options().GetExtension(proto::field);
}

std::string JoinNames(const std::vector<std::string>& names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += StrCat(i == 0 ? "" : i + 1 == names.size() ? last : ", ", names[i]);
  }
  return text;
}

std::vector<std::string> Choices(const FieldDescriptor& field) {
  std::vector<std::string> names;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    names.push_back(ToKebabCase(field.enum_type()->value(i)->name()));
  }
  return names;
}

std::string NumberProblem(const FieldDescriptor& field, double value) {
  if (IsInRange(FieldRule(field), value)) return {};
  const std::string range = RangeText(field);
  return StrCat("must be ", range.empty() || !std::isfinite(value) ? "finite" : range);
}

std::pair<std::string, std::string> ValueProblem(const Message& message,
                                                 const FieldDescriptor& field) {
  const auto& read = *message.GetReflection();
  const auto number = [&field](auto value) {
    return std::pair(NumberProblem(field, static_cast<double>(value)), StrCat(value));
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return number(read.GetInt64(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return number(read.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return number(read.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_STRING: {
      const std::string text = read.GetString(message, &field);
      return {TextProblem(FieldRule(field), text), StrCat("'", text, "'")};
    }
    default:
      return {};
  }
}

Status CheckFields(const Message& message) { return CheckMessage(message, ""); }

std::string RangeText(const FieldDescriptor& field) {
  const proto::Field& rule = FieldRule(field);
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return JoinNames(Choices(field));
  const auto bound = [&field](double value) {  // 1000000, not 1e+06
    const bool is_integer = field.cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE;
    return is_integer ? StrCat(static_cast<std::int64_t>(value)) : StrCat(value);
  };
  if (rule.has_min() && rule.has_max()) {
    return StrCat("from ", bound(rule.min()), " to ", bound(rule.max()));
  }
  std::vector<std::string> parts;
  if (rule.has_min()) parts.push_back(StrCat("at least ", bound(rule.min())));
  if (rule.has_above()) parts.push_back(StrCat("above ", bound(rule.above())));
  if (rule.has_max()) parts.push_back(StrCat("at most ", bound(rule.max())));
  if (rule.has_below()) parts.push_back(StrCat("below ", bound(rule.below())));
  return JoinNames(parts, " and ");
}

std::string DefaultText(const FieldDescriptor& field) {
  if (field.is_repeated() || FieldRule(field).required() || !field.has_default_value()) return {};
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return StrCat(field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT64:
      return StrCat(field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return StrCat(field.default_value_double());
    case FieldDescriptor::CPPTYPE_BOOL:
      return field.default_value_bool() ? "true" : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return ToKebabCase(field.default_value_enum()->name());
    default:
      return field.default_value_string();
  }
}

}  // namespace gaccd
