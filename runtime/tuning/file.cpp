#include "runtime/tuning/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "linnet/error.h"
#include "runtime/json.h"

namespace linnet {

namespace {

template <class T>
struct Name {
  const char* text;
  T value;
};
constexpr Name<Length> kLengths[] = {
    {"short", Length::short_}, {"medium", Length::medium}, {"long", Length::long_}};
constexpr Name<Width> kWidths[] = {{"few", Width::few}, {"many", Width::many}};
constexpr Name<Direction> kDirections[] = {{"forward", Direction::forward},
                                           {"backward", Direction::backward},
                                           {"decode", Direction::decode}};
constexpr Name<DType> kFormats[] = {
    {"f32", DType::f32}, {"bf16", DType::bf16}, {"f16", DType::f16}};
constexpr const char* kGates[] = {"pre", "pre_bounded", "softplus", "bounded"};
constexpr const char* kHow[] = {"measured", "modelled", "by hand"};

template <class T, size_t n>
T value_of(const Json& json, const char* member, const Name<T> (&names)[n]) {
  const std::string& text = json.string_at(member);
  for (const Name<T>& name : names)
    if (name.text == text) return name.value;
  throw Error(fmt::format("expected another \"{}\" than {}", member, json_quoted(text)));
}
template <size_t n>
std::string text_among(const Json& json, const char* member, const char* const (&names)[n]) {
  const std::string& text = json.string_at(member);
  if (std::find(std::begin(names), std::end(names), text) == std::end(names))
    throw Error(fmt::format("expected another \"{}\" than {}", member, json_quoted(text)));
  return text;
}

Schedule schedule_of(const Json& json) {
  Schedule schedule;
  for (const auto& [name, value] : json.members)
    if ((value.kind != Json::Kind::number && value.kind != Json::Kind::boolean) ||
        value.number != static_cast<double>(static_cast<int64_t>(value.number)) ||
        !schedule.set(name, static_cast<int64_t>(value.number)))
      throw Error(fmt::format("a schedule with {} = {} is not known", name, value.number));
  if (schedule.chunk < 1) throw Error("a schedule has no chunk");
  return schedule;
}

TuningEntry entry_of(const Json& json) {
  TuningEntry entry;
  entry.key.op = json.string_at("op");
  entry.key.direction = value_of(json, "direction", kDirections);
  entry.key.gate = text_among(json, "gate", kGates);
  entry.key.dtype = value_of(json, "dtype", kFormats);
  entry.key.gate_dtype = value_of(json, "gate_dtype", kFormats);
  entry.key.state_dtype = value_of(json, "state_dtype", kFormats);
  if (const Json* tf32 = json.find("tf32")) entry.key.tf32 = tf32->number != 0;
  entry.key.key_dim = json.whole_at("K", 1, 1 << 20);
  entry.key.value_dim = json.whole_at("V", 1, 1 << 20);
  entry.shape = {value_of(json, "width", kWidths), value_of(json, "length", kLengths)};
  entry.schedule = schedule_of(json.at("schedule", Json::Kind::object));
  const Json& found = json.at("found", Json::Kind::object);
  entry.how = text_among(found, "how", kHow);
  entry.device = found.string_at("device");
  entry.generator = found.string_at("generator");
  entry.date = found.string_at("date");
  entry.workload = found.string_at("workload");
  entry.ms = found.number_at("ms");
  entry.default_ms = found.number_at("default_ms");
  return entry;
}

std::string text_of(const TuningEntry& e) {
  std::string schedule;
  e.schedule.for_each_field([&](std::string_view name, int64_t value, int64_t fallback) {
    if (value != fallback || name == "chunk")
      schedule += fmt::format("{}\"{}\": {}", schedule.empty() ? "" : ", ", name, value);
  });
  return fmt::format(
      "    {{\"op\": {}, \"direction\": \"{}\", \"gate\": {}, \"dtype\": \"{}\", \"gate_dtype\": "
      "\"{}\", \"state_dtype\": \"{}\",{} \"K\": {}, \"V\": {}, \"width\": \"{}\", \"length\": "
      "\"{}\",\n     \"schedule\": {{{}}},\n     \"found\": {{\"how\": {}, \"device\": {}, "
      "\"generator\": {}, \"date\": {}, \"workload\": {}, \"ms\": {:.6g}, \"default_ms\": "
      "{:.6g}}}}}",
      json_quoted(e.key.op), name_of(e.key.direction), json_quoted(e.key.gate),
      name_of(e.key.dtype), name_of(e.key.gate_dtype), name_of(e.key.state_dtype),
      e.key.tf32 ? " \"tf32\": true," : "", e.key.key_dim, e.key.value_dim, name_of(e.shape.width),
      name_of(e.shape.length), schedule, json_quoted(e.how), json_quoted(e.device),
      json_quoted(e.generator), json_quoted(e.date), json_quoted(e.workload), e.ms, e.default_ms);
}

}  // namespace

const char* name_of(Length length) { return kLengths[static_cast<int>(length)].text; }
const char* name_of(Width width) { return kWidths[static_cast<int>(width)].text; }
const char* name_of(Direction direction) { return kDirections[static_cast<int>(direction)].text; }

TuningKey::TuningKey(const Problem& problem, Direction towards)
    : op(problem.op),
      direction(towards),
      gate(problem.gate == Gate::softplus  ? "softplus"
           : problem.gate == Gate::bounded ? "bounded"
           : problem.lower_bound != 0      ? "pre_bounded"
                                           : "pre"),
      dtype(problem.dtype),
      gate_dtype(problem.gate_dtype),
      state_dtype(problem.state_dtype),
      tf32(problem.tf32),
      key_dim(problem.key_dim),
      value_dim(problem.value_dim) {}

std::string TuningKey::describe() const {
  return fmt::format("{} {}, gate {}, {}{} (gate {}, state {}), K {}, V {}", op, name_of(direction),
                     gate, name_of(dtype), tf32 ? " tf32" : "", name_of(gate_dtype),
                     name_of(state_dtype), key_dim, value_dim);
}

std::string TuningEntry::place() const {
  return fmt::format("{}, {} heads, {}", key.describe(), name_of(shape.width),
                     name_of(shape.length));
}

TuningFile TuningFile::parse(std::string_view text) {
  Json json = Json::parse(text);
  if (json.kind != Json::Kind::object) throw Error("expected an object");
  auto version = [&](const char* member, int expected) {
    double number = json.number_at(member);
    if (number != expected)
      throw Error(
          fmt::format("it is of another version: \"{}\" {}, this is {}", member, number, expected));
  };
  version("format", kFormat);
  version("schedules", kSchedules);
  TuningFile file{json.string_at("architecture"), json.string_at("made_by"), {}};
  for (const Json& entry : json.at("entries", Json::Kind::array).items)
    file.entries.push_back(entry_of(entry));
  return file;
}

std::string TuningFile::text() const {
  std::string text = fmt::format(
      "{{\n  \"format\": {},\n  \"schedules\": {},\n  \"architecture\": {},\n  \"made_by\": {},\n"
      "  \"entries\": [",
      kFormat, kSchedules, json_quoted(architecture), json_quoted(made_by));
  std::vector<const TuningEntry*> order;
  for (const TuningEntry& entry : entries) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const TuningEntry* a, const TuningEntry* b) {
    auto rank = [](const TuningEntry* e) {
      return std::tuple(e->key.op, e->key.direction, e->key.gate, e->key.dtype, e->key.gate_dtype,
                        e->key.state_dtype, e->key.tf32, e->key.key_dim, e->key.value_dim,
                        e->shape.width, e->shape.length);
    };
    return rank(a) < rank(b);
  });
  const char* separator = "\n";
  for (const TuningEntry* entry : order) {
    text += separator + text_of(*entry);
    separator = ",\n";
  }
  return text + "\n  ]\n}\n";
}

void TuningFile::merge(const std::vector<TuningEntry>& other) {
  for (const TuningEntry& entry : other) {
    auto same = [&](const TuningEntry& own) { return own.same_place(entry); };
    auto found = std::find_if(entries.begin(), entries.end(), same);
    if (found == entries.end())
      entries.push_back(entry);
    else
      *found = entry;
  }
}

std::optional<TuningFile> read_tuning_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  try {
    return TuningFile::parse(text.str());
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace linnet
