// Writes plain structs for a message of proto/ and all messages in it, and conversions in both
// directions:
//   make_structs DESCRIPTORS gaccd.proto.Job daemon/config/job_spec
// writes job_spec.h and job_spec.cc. DESCRIPTORS is the output of protoc --descriptor_set_out
// --include_imports --include_source_info.
//
// message Linear becomes struct LinearSpec with members named like its fields. The member is
//   T                 for a field with a default, a required one, or a message that may be empty
//   std::optional<T>  for any other field
//   std::vector<T>    for a repeated field
//   std::variant      for a oneof, with its name; std::monostate first if it may be unset
// If there are variants, the outermost struct is copied, moved and destroyed by functions in the
// .cc: otherwise every source that does so compiles them. The other structs are aggregates. A
// message with only one oneof becomes this variant. enum Device { CPU = 1; } becomes enum class
// Device { kCpu = 1 } with Name(), unless the option declared_in names its header.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <exception>
#include <fstream>
#include <set>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/config/fields.h"
#include "proto/field.pb.h"

namespace gaccd {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

constexpr std::size_t kColumns = 100;

// ---- Names

// SKIP_UPDATE: SkipUpdate. A part with a digit is unchanged: BF16.
std::string CamelCase(const std::string& name) {
  std::string text;
  for (std::string part : Split(name, '_')) {
    if (part.find_first_of("0123456789") == std::string::npos) {
      for (char& c : std::span(part).subspan(1)) c = static_cast<char>(std::tolower(c));
    }
    text += part;
  }
  return text;
}

// gaccd.proto.Batch.Rounding: proto::Batch::Rounding.
std::string ProtoName(std::string_view full_name) {
  full_name.remove_prefix(std::string_view("gaccd.").size());
  std::string text;
  for (const char c : full_name) text += c == '.' ? std::string("::") : std::string(1, c);
  return text;
}

std::string SpecName(const Descriptor& message) { return message.name() + "Spec"; }

// An enum in a message without fields is named after the message.
std::string EnumName(const EnumDescriptor& type) {
  const Descriptor* scope = type.containing_type();
  return scope != nullptr && scope->field_count() == 0 ? scope->name() : type.name();
}

std::string DeclaringHeader(const EnumDescriptor& type) {
  return type.options().GetExtension(proto::declared_in);
}

// ---- Types

bool IsMessage(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
}

bool IsRequired(const FieldDescriptor& field) {
  return field.options().GetExtension(proto::field).required();
}

bool IsRequired(const OneofDescriptor& one) {
  return one.options().GetExtension(proto::one_required);
}

// Whether a message without any fields is valid.
bool MayBeEmpty(const Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (IsRequired(*message.field(i))) return false;
  }
  for (int i = 0; i < message.oneof_decl_count(); ++i) {
    if (IsRequired(*message.oneof_decl(i))) return false;
  }
  return true;
}

bool IsOptional(const FieldDescriptor& field) {
  if (field.is_repeated() || IsRequired(field)) return false;
  return IsMessage(field) ? !MayBeEmpty(*field.message_type()) : !field.has_default_value();
}

bool IsOneof(const Descriptor& message) {
  return message.oneof_decl_count() == 1 &&
         message.oneof_decl(0)->field_count() == message.field_count();
}

std::string ElementType(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return "std::int64_t";
    case FieldDescriptor::CPPTYPE_UINT64:
      return "std::uint64_t";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return "double";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "bool";
    case FieldDescriptor::CPPTYPE_STRING:
      return "std::string";
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumName(*field.enum_type());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return SpecName(*field.message_type());
    default:
      throw std::runtime_error(StrCat(field.full_name(), ": no type for ", field.cpp_type_name()));
  }
}

std::string MemberType(const FieldDescriptor& field) {
  const std::string element = ElementType(field);
  if (field.is_repeated()) return StrCat("std::vector<", element, ">");
  return IsOptional(field) ? StrCat("std::optional<", element, ">") : element;
}

std::string Variant(const OneofDescriptor& one) {
  std::string text = IsRequired(one) ? "" : "std::monostate";
  for (int i = 0; i < one.field_count(); ++i) {
    text += StrCat(text.empty() ? "" : ", ", ElementType(*one.field(i)));
  }
  return StrCat("std::variant<", text, ">");
}

// Empty where the type has a default of its own. With "= {}" g++ compiles constructors and
// destructors of all these variants, optionals and vectors in every source with the header.
std::string DefaultValue(const FieldDescriptor& field) {
  if (field.is_repeated() || IsOptional(field)) return "";
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return StrCat(field.default_value_int64());
    case FieldDescriptor::CPPTYPE_UINT64:
      return StrCat(field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      char text[32];
      const auto end =
          std::to_chars(std::begin(text), std::end(text), field.default_value_double()).ptr;
      return {text, end};
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return field.default_value_bool() ? "true" : "false";
    case FieldDescriptor::CPPTYPE_STRING:
      return field.has_default_value() ? StrCat('"', field.default_value_string(), '"') : "";
    case FieldDescriptor::CPPTYPE_ENUM:
      return StrCat(ElementType(field), "::k", CamelCase(field.default_value_enum()->name()));
    default:
      return "";
  }
}

// ---- Text

// `text` in lines of at most kColumns, each after `indent`; from the second one on also after
// `more`.
std::string Wrapped(std::string_view indent, std::string_view text, std::string_view more = "") {
  std::string lines;
  std::string line;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find_first_of(" \n"));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (word.empty()) continue;
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > kColumns) {
      lines += StrCat(indent, line, "\n");
      line = more;
    }
    line += StrCat(line.empty() || line == more ? "" : " ", word);
  }
  return line.empty() ? lines : StrCat(lines, indent, line, "\n");
}

// The help of a field, otherwise the comment before or after the declaration.
template <typename T>
std::string FindComment(const T& described) {
  google::protobuf::SourceLocation location;
  if constexpr (std::is_same_v<T, FieldDescriptor>) {
    const std::string& help = described.options().GetExtension(proto::field).help();
    if (!help.empty()) return help;
  }
  if (!described.GetSourceLocation(&location)) return {};
  const bool before = !location.leading_comments.empty();
  return before ? location.leading_comments : location.trailing_comments;
}

// One member, with its comment on the same line if it fits.
std::string Member(const std::string& code, std::string_view comment) {
  const std::string text = Wrapped("  ", code, "    ");
  const std::string note = Wrapped("  // ", comment);
  const bool same_line =
      std::ranges::count(note, '\n') == 1 && text.size() + note.size() <= kColumns + 1;
  return same_line ? StrCat(text.substr(0, text.size() - 1), note) : note + text;
}

// ---- The header

std::string EnumDefinition(const EnumDescriptor& type) {
  std::string values;
  for (int i = 0; i < type.value_count(); ++i) {
    values += StrCat(i == 0 ? "" : ", ", "k", CamelCase(type.value(i)->name()), " = ",
                     type.value(i)->number());
  }
  const std::string name = EnumName(type);
  return StrCat(
      Wrapped("", StrCat("enum class ", name, " : std::uint8_t { ", values, " };"), "    "),
      "[[nodiscard]] std::string_view Name(", name, " value);  // \"",
      ToKebabCase(type.value(0)->name()), "\", ...\n\n");
}

// Declarations, or with `scope` definitions, of the functions that copy, move and destroy the
// outermost struct.
std::string SpecialMembers(const std::string& name, const std::string& scope) {
  const std::string end = scope.empty() ? ";\n" : " = default;\n";
  const std::string begin = scope.empty() ? "  " : "";
  const std::string result = StrCat(begin, name, "& ", scope, "operator=(");
  return StrCat(begin, scope, name, "()", end, begin, scope, name, "(const ", name, "& other)", end,
                begin, scope, name, "(", name, "&& other) noexcept", end, result, "const ", name,
                "& other)", end, result, name, "&& other) noexcept", end, begin, scope, "~", name,
                "()", end);
}

std::string StructDefinition(const Descriptor& message, bool special_members) {
  const std::string comment = Wrapped("// ", FindComment(message));
  const std::string name = SpecName(message);
  if (IsOneof(message)) {
    return StrCat(
        comment,
        Wrapped("", StrCat("using ", name, " = ", Variant(*message.oneof_decl(0)), ";"), "    "),
        "\n");
  }
  if (message.field_count() == 0) return StrCat(comment, "struct ", name, " {};\n\n");
  std::string members = special_members ? SpecialMembers(name, "") + "\n" : "";
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const OneofDescriptor* one = field.containing_oneof();
    if (one == nullptr) {
      const std::string value = DefaultValue(field);
      members += Member(
          StrCat(MemberType(field), " ", field.name(), value.empty() ? "" : " = ", value, ";"),
          FindComment(field));
    } else if (one->field(0) == &field) {
      members += Member(StrCat(Variant(*one), " ", one->name(), ";"), "");
    }
  }
  return StrCat(comment, "struct ", name, " {\n", members, "};\n\n");
}

// The types in a message, each before its users.
struct Types {
  std::vector<const EnumDescriptor*> enums;
  std::vector<const Descriptor*> messages;

  void Add(const Descriptor& message) {
    if (std::ranges::find(messages, &message) != messages.end()) return;
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      if (IsMessage(field)) Add(*field.message_type());
      const EnumDescriptor* type = field.enum_type();
      if (type != nullptr && std::ranges::find(enums, type) == enums.end()) enums.push_back(type);
    }
    messages.push_back(&message);
  }

  [[nodiscard]] bool HaveVariants() const {
    return std::ranges::any_of(messages,
                               [](const Descriptor* m) { return m->oneof_decl_count() > 0; });
  }
};

std::string Header(const Descriptor& root, const Types& types) {
  std::set<std::string> headers;
  std::string definitions;
  for (const EnumDescriptor* type : types.enums) {
    if (DeclaringHeader(*type).empty()) {
      definitions += EnumDefinition(*type);
    } else {
      headers.insert(StrCat("#include \"", DeclaringHeader(*type), "\"\n"));
    }
  }
  for (const Descriptor* message : types.messages) {
    definitions += StructDefinition(*message, message == &root && types.HaveVariants());
  }
  std::string includes;
  for (const std::string& header : headers) includes += header;
  return StrCat("// Generated by make_structs.cc from ", root.file()->name(), ".\n#pragma once\n\n",
                "#include <cstdint>\n#include <optional>\n#include <string>\n",
                "#include <string_view>\n#include <variant>\n#include <vector>\n\n", includes,
                includes.empty() ? "" : "\n", "namespace gaccd {\n\nnamespace proto {\nclass ",
                root.name(), ";\n}\n\n", definitions, "[[nodiscard]] ", SpecName(root),
                " FromProto(const ", ProtoName(root.full_name()), "& message);\n",
                "// Sets every field that has a value, including defaults.\n", "[[nodiscard]] ",
                ProtoName(root.full_name()), " ToProto(const ", SpecName(root),
                "& spec);\n\n}  // namespace gaccd\n");
}

// ---- The source

std::string NameFunction(const EnumDescriptor& type) {
  const std::string name = EnumName(type);
  std::string cases;
  for (int i = 0; i < type.value_count(); ++i) {
    cases += StrCat("    case ", name, "::k", CamelCase(type.value(i)->name()),
                    ":\n      return \"", ToKebabCase(type.value(i)->name()), "\";\n");
  }
  return StrCat("std::string_view Name(", name, " value) {\n  switch (value) {\n", cases,
                "  }\n  return \"?\";\n}\n\n");
}

std::string Value(const FieldDescriptor& field, const std::string& message) {
  if (IsMessage(field)) return StrCat("From(", message, ")");
  if (field.enum_type() == nullptr) return message;
  return StrCat("static_cast<", ElementType(field), ">(", message, ")");
}

std::string ReadCode(const FieldDescriptor& field) {
  const std::string& name = field.name();
  const OneofDescriptor* one = field.containing_oneof();
  const std::string get = Value(field, StrCat("message.", name, "()"));
  if (one != nullptr) {
    const std::string to = IsOneof(*field.containing_type()) ? "" : "." + one->name();
    return StrCat("  if (message.has_", name, "()) spec", to, " = ", get, ";\n");
  }
  if (field.is_repeated()) {
    return StrCat("  for (const auto& one : message.", name, "()) spec.", name, ".push_back(",
                  Value(field, "one"), ");\n");
  }
  return StrCat("  ", IsOptional(field) ? StrCat("if (message.has_", name, "()) ") : "", "spec.",
                name, " = ", get, ";\n");
}

// Code that sets the field to `value`, or appends it to a list.
std::string SetterCode(const FieldDescriptor& field, const std::string& value) {
  const std::string& name = field.name();
  const std::string_view verb = field.is_repeated() ? "add_" : "set_";
  if (IsMessage(field)) {
    return StrCat("To(", value, ", *message.", field.is_repeated() ? "add_" : "mutable_", name,
                  "());\n");
  }
  const EnumDescriptor* type = field.enum_type();
  return type == nullptr ? StrCat("message.", verb, name, "(", value, ");\n")
                         : StrCat("message.", verb, name, "(static_cast<",
                                  ProtoName(type->full_name()), ">(", value, "));\n");
}

std::string WriteCode(const FieldDescriptor& field) {
  const std::string& name = field.name();
  if (const OneofDescriptor* one = field.containing_oneof(); one != nullptr) {
    const std::string from = IsOneof(*field.containing_type()) ? "" : "." + one->name();
    return StrCat("  if (const auto* one = std::get_if<", ElementType(field), ">(&spec", from,
                  "); one != nullptr) {\n    ", SetterCode(field, "*one"), "  }\n");
  }
  if (field.is_repeated()) {
    return StrCat("  for (const auto& one : spec.", name, ") ", SetterCode(field, "one"));
  }
  return IsOptional(field) ? StrCat("  if (spec.", name, ") ", SetterCode(field, "*spec." + name))
                           : "  " + SetterCode(field, "spec." + name);
}

std::string Conversions(const Descriptor& message) {
  const std::string spec = SpecName(message);
  const std::string type = ProtoName(message.full_name());
  std::string reads;
  std::string writes;
  for (int i = 0; i < message.field_count(); ++i) {
    reads += ReadCode(*message.field(i));
    writes += WriteCode(*message.field(i));
  }
  return StrCat(spec, " From([[maybe_unused]] const ", type, "& message) {\n  ", spec, " spec;\n",
                reads, "  return spec;\n}\nvoid To([[maybe_unused]] const ", spec,
                "& spec, [[maybe_unused]] ", type, "& message) {\n", writes, "}\n\n");
}

std::string Source(const Descriptor& root, const Types& types, std::string_view header) {
  const std::string file = root.file()->name();
  std::string text = StrCat("// Generated by make_structs.cc from ", file, ".\n#include \"", header,
                            "\"\n\n#include \"", file.substr(0, file.rfind('.')),
                            ".pb.h\"\n\nnamespace gaccd {\nnamespace {\n\n");
  for (const Descriptor* message : types.messages) text += Conversions(*message);
  text += "}  // namespace\n\n";
  for (const EnumDescriptor* type : types.enums) {
    if (DeclaringHeader(*type).empty()) text += NameFunction(*type);
  }
  const std::string spec = SpecName(root);
  const std::string type = ProtoName(root.full_name());
  if (types.HaveVariants()) text += SpecialMembers(spec, spec + "::") + "\n";
  return StrCat(text, spec, " FromProto(const ", type, "& message) { return From(message); }\n\n",
                type, " ToProto(const ", spec, "& spec) {\n  ", type,
                " message;\n  To(spec, message);\n  return message;\n}\n\n}  // namespace gaccd\n");
}

// ---- Files

// Does not write an unchanged file, so that its users are not compiled again.
void WriteFile(const std::string& path, const std::string& text) {
  std::ostringstream was;
  was << std::ifstream(path).rdbuf();
  if (was.str() == text) return;
  if (!(std::ofstream(path) << text).flush()) throw std::runtime_error("cannot write " + path);
}

void Run(const std::string& descriptors, const std::string& name, const std::string& output) {
  std::ifstream in(descriptors, std::ios::binary);
  google::protobuf::FileDescriptorSet files;
  if (!files.ParseFromIstream(&in)) throw std::runtime_error("cannot read " + descriptors);
  google::protobuf::DescriptorPool pool;
  for (const auto& file : files.file()) {
    if (pool.BuildFile(file) == nullptr) throw std::runtime_error("wrong: " + file.name());
  }
  const Descriptor* root = pool.FindMessageTypeByName(name);
  if (root == nullptr) throw std::runtime_error("no message " + name);
  Types types;
  types.Add(*root);
  WriteFile(output + ".h", Header(*root, types));
  WriteFile(output + ".cc", Source(*root, types, output + ".h"));
}

}  // namespace
}  // namespace gaccd

int main(int argc, char** argv) {
  try {
    if (argc != 4) throw std::runtime_error("expected DESCRIPTORS MESSAGE OUTPUT");
    gaccd::Run(argv[1], argv[2], argv[3]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_structs: %s\n", error.what());
    return 1;
  }
}
