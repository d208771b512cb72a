#include "daemon/config/fields.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <charconv>
#include <optional>
#include <system_error>

#include "collectives/base/strings.h"
#include "daemon/config/arguments.h"

namespace gaccd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;

Status Wrong(const std::string& problem) { return {ErrorKind::kUsage, problem}; }

template <typename T>
std::optional<T> Parse(std::string_view text) {
  return ToNumber<T>(text.substr(text.starts_with('+') ? 1 : 0));
}

// For `text` that is not an integer in `range`.
Status NotAnInteger(std::string_view text, std::string_view range) {
  const std::size_t digits = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  const bool number = digits < text.size() &&
                      text.find_first_not_of("0123456789", digits) == std::string_view::npos;
  return Wrong(number ? std::string(range) : "must be a whole number");
}

// For `text` that is not a double.
Status NotANumber(std::string_view text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] =
      std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), last, value);
  const bool range = error == std::errc::result_out_of_range && end == last;
  return Wrong(range ? "is too large or too close to 0 for 64 bits" : "must be a number");
}

Status SetEnum(Message& message, const FieldDescriptor& field, std::string_view text) {
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const auto* value = field.enum_type()->value(i);
    if (value->name() != text && ToKebabCase(value->name()) != text) continue;
    message.GetReflection()->SetEnum(&message, &field, value);
    return {};
  }
  return Wrong(StrCat("must be one of ", JoinNames(Choices(field), ", ")));
}

Status SetValue(Message& message, const FieldDescriptor& field, std::string_view text) {
  const auto& write = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      const auto value = Parse<std::int64_t>(text);
      if (!value) return NotAnInteger(text, "does not fit 64 bits");
      write.SetInt64(&message, &field, *value);
      break;
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      const auto value = Parse<std::uint64_t>(text);
      if (!value) {
        return NotAnInteger(text, "must be a whole number from 0 to 18446744073709551615");
      }
      write.SetUInt64(&message, &field, *value);
      break;
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      const auto value = Parse<double>(text);
      if (!value) return NotANumber(text);
      write.SetDouble(&message, &field, *value);
      break;
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") return Wrong("must be true or false");
      write.SetBool(&message, &field, text == "true");
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      write.SetString(&message, &field, std::string(text));
      break;
    case FieldDescriptor::CPPTYPE_ENUM:
      return SetEnum(message, field, text);
    default:
      return Wrong("is a group of fields: set one of them");
  }
  const std::string problem = ValueProblem(message, field).first;
  return problem.empty() ? Status() : Wrong(problem);
}

// A path split at its first dot: "layer[3].name" has name "layer", index 3 and rest "name".
struct Step {
  std::string_view name;
  std::optional<std::size_t> index;
  std::string_view rest;
};
Result<Step> FirstStep(std::string_view path) {
  const std::size_t dot = path.find('.');
  Step step{.name = path.substr(0, dot), .index = {}, .rest = {}};
  if (dot != std::string_view::npos) step.rest = path.substr(dot + 1);
  const std::size_t bracket = step.name.find('[');
  if (bracket == std::string_view::npos) return step;
  const std::string_view inside = step.name.substr(bracket + 1);
  if (inside.ends_with(']')) step.index = Parse<std::size_t>(inside.substr(0, inside.size() - 1));
  if (!step.index) {
    return Wrong(StrCat("expected ", step.name.substr(0, bracket), "[N], found ", step.name));
  }
  step.name = step.name.substr(0, bracket);
  return step;
}

Status UnknownField(const Descriptor& root, const Descriptor& type, std::string_view name) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::vector<std::string_view> here(names.begin(), names.end());
  std::string suggestion = Suggestion(name, here);
  if (suggestion.empty()) {  // "lr" is a field of another message
    std::vector<std::string> paths;
    for (const NamedField& leaf : LeafFields(root)) {
      if (leaf.field->name() == name) {
        paths.push_back(leaf.path == name ? StrCat(name, " of the job itself") : leaf.path);
      }
    }
    constexpr std::size_t kMax = 3;
    if (!paths.empty() && paths.size() <= kMax) {
      suggestion = StrCat(" (did you mean ", JoinNames(paths), "?)");
    }
  }
  return Wrong(StrCat("unknown field '", name, "'", suggestion, "; ", type.name(), " has ",
                      names.empty() ? "no fields" : JoinNames(names, " and ")));
}

Status CheckIndex(const Message& message, const FieldDescriptor& field, std::size_t index) {
  const auto size = static_cast<std::size_t>(message.GetReflection()->FieldSize(message, &field));
  if (index < size) return {};
  const std::string& name = field.name();
  return Wrong(size == 0 ? StrCat("the job has no ", name)
                         : StrCat("expected ", name, "[0] to ", name, "[", size - 1, "], found ",
                                  name, "[", index, "]"));
}

// The list element at `step`; a new element for ListElement::kAny.
Result<Message*> FindElement(Message& message, const FieldDescriptor& field, const Step& step,
                             ListElement element) {
  const auto& reflection = *message.GetReflection();
  if (element == ListElement::kAny) return reflection.AddMessage(&message, &field);
  GACCD_RETURN_IF_ERROR(CheckIndex(message, field, *step.index));
  return reflection.MutableRepeatedMessage(&message, &field, static_cast<int>(*step.index));
}

Status SetElement(Message& message, const FieldDescriptor& field, const Step& step,
                  std::string_view text, ListElement element) {
  const auto& write = *message.GetReflection();
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_INT64) {
    return Wrong("is set in the job text only");
  }
  const auto value = Parse<std::int64_t>(text);
  if (!value) return NotAnInteger(text, "does not fit 64 bits");
  const std::string problem = NumberProblem(field, static_cast<double>(*value));
  if (!problem.empty()) return Wrong(problem);
  if (element == ListElement::kAny) return {};
  GACCD_RETURN_IF_ERROR(CheckIndex(message, field, *step.index));
  write.SetRepeatedInt64(&message, &field, static_cast<int>(*step.index), *value);
  return {};
}

// A list requires [N], other fields have none; only messages have fields.
Status CheckStep(const FieldDescriptor& field, const Step& step) {
  if (field.is_repeated() != step.index.has_value()) {
    const bool settable = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ||
                          field.cpp_type() == FieldDescriptor::CPPTYPE_INT64;  // as SetElement()
    return Wrong(field.is_repeated() && !settable ? "is set in the job text only"
                 : field.is_repeated()
                     ? StrCat(field.name(), " is a list: name an element, ", field.name(), "[0]")
                     : StrCat(field.name(), " is not a list"));
  }
  const bool group = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (group == step.rest.empty()) {
    return Wrong(group ? StrCat(field.name(), " is a group of fields: set one of them")
                       : StrCat(field.name(), " has no fields, found '", step.rest, "'"));
  }
  return {};
}

void AppendLeaves(const Descriptor& type, const std::string& prefix, int depth,
                  std::vector<NamedField>& leaves) {
  constexpr int kMaxDepth = 16;  // ends the recursion for a message that contains its own type
  for (int i = 0; i < type.field_count() && depth < kMaxDepth; ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = StrCat(prefix, field.name(), field.is_repeated() ? "[0]" : "");
    const Descriptor* group = field.message_type();
    if (group != nullptr && group->field_count() > 0) {
      AppendLeaves(*group, path + ".", depth + 1, leaves);
    } else {
      leaves.push_back({path, &field});
    }
  }
}

}  // namespace

Status SetField(Message& root, std::string_view path, std::string_view text, ListElement element) {
  Message* message = &root;
  for (std::string_view rest = path;;) {
    GACCD_ASSIGN_OR_RETURN(const Step step, FirstStep(rest));
    const Descriptor& type = *message->GetDescriptor();
    const FieldDescriptor* field = type.FindFieldByName(std::string(step.name));
    if (field == nullptr) return UnknownField(*root.GetDescriptor(), type, step.name);
    GACCD_RETURN_IF_ERROR(CheckStep(*field, step));
    const auto& reflection = *message->GetReflection();
    if (const OneofDescriptor* one = field->containing_oneof(); one != nullptr) {
      const FieldDescriptor* other = reflection.GetOneofFieldDescriptor(*message, one);
      if (other != nullptr && other != field) {
        return Wrong(StrCat("the job has ", other->name(), ", not ", field->name()));
      }
    }
    if (step.rest.empty()) {
      return field->is_repeated() ? SetElement(*message, *field, step, text, element)
                                  : SetValue(*message, *field, text);
    }
    if (field->is_repeated()) {
      GACCD_ASSIGN_OR_RETURN(message, FindElement(*message, *field, step, element));
    } else {
      message = reflection.MutableMessage(message, field);
    }
    rest = step.rest;
  }
}

std::vector<NamedField> LeafFields(const Descriptor& type) {
  std::vector<NamedField> leaves;
  AppendLeaves(type, "", 0, leaves);
  return leaves;
}

}  // namespace gaccd
