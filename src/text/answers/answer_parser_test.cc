#include "text/answers/answer_parser.h"

#include <filesystem>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "text/answers/tool_prompt.h"
#include "text/jinja/chat_template.h"
#include "text/answers/fuzz_targets.h"
#include "text/tokenizer/test_support.h"

namespace shoal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// What the deltas of an answer say together.
struct Said {
  std::string content, reasoning;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  std::vector<std::string> ids;
  bool in_call = false;
  friend bool operator==(const Said&, const Said&) = default;
};

void PrintTo(const Said& said, std::ostream* out) {
  *out << "content '" << said.content << "' reasoning '" << said.reasoning << "'";
  for (const auto& [name, arguments] : said.calls) *out << " " << name << "(" << arguments << ")";
  if (said.in_call) *out << " in_call";
}

void add(const AnswerDelta& delta, Said& said) {
  said.content += delta.content;
  said.reasoning += delta.reasoning;
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) {
      EXPECT_EQ(call.index, said.calls.size());
      EXPECT_EQ(call.arguments, "");
      said.calls.emplace_back(call.name, "");
      said.ids.push_back(call.id);
    } else {
      ASSERT_LT(call.index, said.calls.size());
      said.calls[call.index].second += call.arguments;
    }
  }
}

const ToolList kTools = {
    {"get_weather", *parse_ordered_json(R"({"type":"object","properties":{"city":{"type":"string"},"unit":{"type":"string","enum":["C","F"]},
                    "days":{"type":"integer"},"exact":{"type":"boolean"},"where":{"type":"object","properties":{"lat":{"type":"number"}}},
                    "tags":{"type":"array","items":{"type":"string"}},"note":{"anyOf":[{"type":"string"},{"type":"null"}]}}})")},
    {"now", nullptr},
};

AnswerParserOptions options_for(const std::string& calls, const std::string& reasoning = "none") {
  AnswerParserOptions options{.format = *choose_format("", calls, reasoning)};
  options.tools = std::make_shared<ToolList>(kTools);
  return options;
}

// `cuts`: where the text is cut into pieces.
Said parse(const AnswerParserOptions& options, std::string_view text, std::vector<size_t> cuts = {}, bool cut = false) {
  const auto parser = make_answer_parser(options);
  Said said;
  cuts.push_back(text.size());
  size_t at = 0;
  for (const size_t end : cuts) {
    AnswerDelta delta;
    parser->push(text.substr(at, end - at), delta);
    add(delta, said);
    at = end;
  }
  AnswerDelta last;
  parser->finish(cut, last);
  add(last, said);
  said.in_call = parser->in_call();
  EXPECT_EQ(parser->calls(), said.calls.size());
  return said;
}

std::vector<size_t> random_cuts(size_t size, std::mt19937& random) {
  std::vector<size_t> cuts;
  const size_t step = 1 + random() % 12;
  for (size_t at = random() % (step + 1); at < size; at += 1 + random() % step) cuts.push_back(at);
  return cuts;
}

struct Row {
  const char* parser;
  const char* reasoning;
  const char* text;
  Said said;
};

const std::string kBern = R"({"city": "Bern"})";
const std::string kBernC = R"({"city": "Bern", "unit": "C"})";

std::vector<Row> rows() {
  return {
      {"hermes", "qwen3", "<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       {"I look.", "Hm.", {{"get_weather", kBern}, {"now", "{}"}}}},
      {"hermes", "none", "<tool_call>{\"arguments\": {\"city\": \"Bern\"}, \"name\": \"get_weather\"}</tool_call> done", {"done", "", {{"get_weather", kBern}}}},
      {"hermes", "none", "<tool_call>{\"name\": \"now\"}</tool_call>", {"", "", {{"now", "{}"}}}},
      {"hermes", "none", "<tool_call>{\"name\": \"now\", \"arguments\": null}", {"", "", {{"now", "{}"}}}},
      {"hermes", "none", "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Bern\\\"}\"}</tool_call>", {"", "", {{"get_weather", kBern}}}},
      {"hermes", "none", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}</tool_call>", {"", "", {{"f", "{\"a\": \"x\\ny\"}"}}}},
      {"hermes", "none", "a < b and <tool_ and <tool_calls> stay", {"a < b and <tool_ and <tool_calls> stay"}},
      {"hermes", "none", "<tool_call>{\"name\": 7}</tool_call>", {"<tool_call>{\"name\": 7}</tool_call>"}},
      {"hermes", "none", "<tool_call>oops</tool_call>", {"<tool_call>oops</tool_call>"}},
      {"hermes", "none", "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": oops}}</tool_call>after", {"after", "", {{"now", "{\"a\": "}}}},
      {"hermes", "none", "text only \n", {"text only \n"}},
      {"llama3_json", "none", "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}", {"", "", {{"get_weather", kBern}}}},
      {"llama3_json", "none", "<|python_tag|>{\"type\": \"function\", \"name\": \"now\", \"parameters\": {}}; {\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}",
       {"", "", {{"now", "{}"}, {"get_weather", kBern}}}},
      {"llama3_json", "none", "{\"answer\": 42}", {"{\"answer\": 42}"}},
      {"llama3_json", "none", "{\"name\": \"Bern\", \"parameters\": {}}", {"{\"name\": \"Bern\", \"parameters\": {}}"}},
      {"llama3_json", "none", "Say {\"name\": \"now\"}", {"Say {\"name\": \"now\"}"}},
      {"mistral", "mistral", "[THINK]so[/THINK]Hi[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Bern\"}[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}",
       {"Hi", "so", {{"get_weather", kBern}, {"now", "{}"}}, {"", "abcdefghi"}}},
      {"mistral_v3", "none", "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}, \"id\": \"abcdefghi\"}, {\"name\": \"now\", \"arguments\": {}}]",
       {"", "", {{"get_weather", kBern}, {"now", "{}"}}}},
      {"deepseek_v3", "qwen3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Bern\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "", {{"get_weather", kBern}, {"now", "{}"}}}},
      {"deepseek_v31", "none", "ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Bern\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"ok", "", {{"get_weather", kBern}}}},
      {"deepseek_v32", "none", "\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Bern</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
       {"", "", {{"get_weather", R"({"city": "Bern", "days": 3})"}}}},
      {"kimi_k2", "none", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Bern\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
       {"", "", {{"get_weather", kBern}, {"now", "{}"}}, {"functions.get_weather:0", "functions.now:1"}}},
      {"kimi_k3", "kimi_k3", "Hm<|close|>think<|sep|><|open|>response<|sep|>Hi<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>5<|close|>argument<|sep|><|open|>argument key=\"days\" type=\"number\"<|sep|>5<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>",
       {"Hi", "Hm", {{"get_weather", R"({"city": "5", "days": 5})"}}}},
      {"qwen3_coder", "qwen3", "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\nor so\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=where>\n{\"lat\": 1.5}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       {"", "", {{"get_weather", R"({"city": "Bern\nor so", "days": 3, "exact": true, "where": {"lat":1.5}})"}, {"now", "{}"}}}},
      {"qwen3_coder", "none", "<function=now></function></tool_call>", {"", "", {{"now", "{}"}}}},
      {"glm47", "none", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>12</arg_value><arg_key>days</arg_key><arg_value>12</arg_value></tool_call>",
       {"", "", {{"get_weather", R"({"city": "12", "days": 12})"}}}},
      {"glm45", "none", "\n<tool_call>now\n</tool_call>", {"", "", {{"now", "{}"}}}},
      {"hy_v3", "hy_v3", "<think:opensource>a</think:opensource><tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Bern</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>",
       {"", "a", {{"get_weather", kBern}}}},
      {"minimax", "none", "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n{\"name\": \"now\", \"arguments\": {}}\n</tool_calls>",
       {"", "", {{"get_weather", kBern}, {"now", "{}"}}}},
      {"minimax_m2", "none", "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Bern</parameter>\n</invoke>\n</minimax:tool_call>", {"", "", {{"get_weather", kBern}}}},
      {"minimax_m3", "minimax_m3", "</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">]<]minimax[>[<city>Bern]<]minimax[>[</city>]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[<item>2]<]minimax[>[</item>]<]minimax[>[</tags>]<]minimax[>[<where>]<]minimax[>[<lat>1.5]<]minimax[>[</lat>]<]minimax[>[</where>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
       {"</mm:think>", "", {{"get_weather", R"({"city":"Bern","tags":["a","2"],"where":{"lat":1.5}})"}}}},
      {"gemma4", "gemma4", "<|channel>thought\nHm\n<channel|><|tool_call>call:get_weather{city:<|\"|>B}e\"rn<|\"|>,days:3,tags:[<|\"|>a<|\"|>],where:{lat:1.5}}<tool_call|>",
       {"", "Hm", {{"get_weather", R"({"city":"B}e\"rn","days":3,"tags":["a"],"where":{"lat":1.5}})"}}}},
      {"gigachat3", "none", "<|function_call|>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}", {"", "", {{"get_weather", kBern}}}},
      {"cohere", "cohere", "<|START_THINKING|>plan<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"now\", \"parameters\": {}}\n]<|END_ACTION|>",
       {"", "plan", {{"get_weather", kBern}, {"now", "{}"}}}},
      {"cohere", "cohere", "<|START_THINKING|>plan<|END_THINKING|><|START_TEXT|>Hello<|END_TEXT|>", {"Hello", "plan"}},
      {"apertus", "apertus", "<|inner_prefix|>plan<|inner_suffix|><|tools_prefix|>[{\"get_weather\": {\"city\": \"Bern\"}}, {\"now\": {}}]<|tools_suffix|>",
       {"", "plan", {{"get_weather", kBern}, {"now", "{}"}}}},
      {"granite", "none", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}]", {"", "", {{"get_weather", kBern}}}},
      {"functionary", "none", "<function=get_weather>{\"city\": \"Bern\"}</function>", {"", "", {{"get_weather", kBern}}}},
      {"phi4_mini_json", "none", "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}]", {"", "", {{"get_weather", kBern}}}},
      {"jamba", "none", "<tool_calls>[\n{\"name\": \"now\", \"arguments\": {}}\n]</tool_calls>", {"", "", {{"now", "{}"}}}},
      {"lfm2", "none", "<|tool_call_start|>[get_weather(city=\"Bern\", days=3, exact=True, note=None, tags=['a', \"b\"]), now()]<|tool_call_end|>ok",
       {"ok", "", {{"get_weather", R"({"city":"Bern","days":3,"exact":true,"note":null,"tags":["a","b"]})"}, {"now", "{}"}}}},
      {"pythonic", "none", "[get_weather(city='B\\'n')]", {"", "", {{"get_weather", R"({"city":"B'n"})"}}}},
      {"pythonic", "none", "[1, 2] are numbers", {"[1, 2] are numbers"}},
      {"openai", "openai_gptoss", "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Bern\"}",
       {"", "Hm", {{"get_weather", kBern}}}},
      {"openai", "openai_gptoss", " to=functions.now<|channel|>commentary json<|message|>{}<|call|>", {"", "", {{"now", "{}"}}}},
      {"openai", "openai_gptoss", "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>a < b<|return|>", {"a < b", "Hm"}},
  };
}

TEST(AnswerParserTest, EveryFamilyIsReadAsItsTemplateWritesIt) {
  for (const Row& row : rows()) {
    AnswerParserOptions options = options_for(row.parser, row.reasoning);
    options.starts_reasoning = std::string_view(row.text).starts_with("Hm<|close|>");
    Said expected = row.said;
    if (expected.ids.empty()) expected.ids.resize(expected.calls.size());
    EXPECT_EQ(parse(options, row.text), expected) << row.parser << ": " << row.text;
  }
}

TEST(AnswerParserTest, HoweverTheTextIsCutTheAnswerIsTheSame) {
  std::mt19937 random(7);
  for (const Row& row : rows()) {
    const AnswerParserOptions options = options_for(row.parser, row.reasoning);
    const std::string_view text = row.text;
    std::vector<size_t> all;
    for (size_t at = 1; at < text.size(); ++at) all.push_back(at);
    const Said whole = parse(options, text);
    EXPECT_EQ(parse(options, text, all), whole) << row.text;
    for (int round = 0; round < 50; ++round) EXPECT_EQ(parse(options, text, random_cuts(text.size(), random)), whole) << row.text;
    for (size_t end = 0; end < text.size(); ++end) {  // an answer that ends anywhere, too
      const std::string_view part = text.substr(0, end);
      for (const bool cut : {false, true}) {
        EXPECT_EQ(parse(options, part, random_cuts(end, random), cut), parse(options, part, {}, cut)) << part;
      }
    }
  }
}

TEST(AnswerParserTest, ArgumentsComeInPieces) {
  const auto parser = make_answer_parser(options_for("hermes"));
  AnswerDelta delta;
  parser->push("<tool_call>{\"name\": \"now\", \"arguments\": {\"text\": \"one ", delta);
  ASSERT_EQ(delta.calls.size(), 2u);
  EXPECT_EQ(delta.calls[0].name, "now");
  EXPECT_EQ(delta.calls[1].arguments, "{\"text\": \"one ");
  delta = {};
  parser->push("two", delta);
  ASSERT_EQ(delta.calls.size(), 1u);
  EXPECT_EQ(delta.calls[0].arguments, "two");
  EXPECT_TRUE(parser->in_call());
}

TEST(AnswerParserTest, AnAnswerThatIsCutWithinACallShowsNoMarkers) {
  const std::string text = "Hi <tool_call>\n{\"name\": \"get_wea";
  EXPECT_EQ(parse(options_for("hermes"), text, {}, true), (Said{.content = "Hi", .in_call = true}));
  EXPECT_EQ(parse(options_for("hermes"), text, {}, false), (Said{.content = text}));
  const Said half = parse(options_for("hermes"), "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"b", {}, true);
  EXPECT_EQ(half.calls[0].second, "{\"a\": \"b");
  EXPECT_TRUE(half.in_call);
}

TEST(AnswerParserTest, ReasoningThatThePromptOpenedIsReasoningFromTheStart) {
  AnswerParserOptions options = options_for("none", "qwen3");
  options.starts_reasoning = true;
  EXPECT_EQ(parse(options, "\nHm, <think> \n</think>\n\nYes </think> <think>"), (Said{"Yes </think> <think>", "Hm, <think>"}));
  EXPECT_EQ(parse(options, "for ever"), (Said{"", "for ever"}));
  options.starts_reasoning = false;
  EXPECT_EQ(parse(options, "What <think> means"), (Said{"What <think> means"}));
  options.reasoning = false;
  EXPECT_EQ(make_answer_parser(options), nullptr);
}

TEST(AnswerParserTest, WithoutToolsWhatLooksLikeACallIsContent) {
  AnswerParserOptions options = options_for("hermes", "qwen3");
  options.tools = nullptr;
  const std::string call = "<tool_call>{\"name\": \"now\"}</tool_call>";
  EXPECT_EQ(parse(options, call), (Said{call}));
}

TEST(AnswerParserTest, HostileTextsCostLinearTimeAndAreContent) {
  std::string many(1 << 20, '<'), markers, deep = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": ";
  while (markers.size() < 1 << 19) markers += "<tool_call>";
  deep += std::string(1 << 19, '[');
  const std::string bytes = "\xff\xfe<tool_call>\xff{\"name\":\"\xc3\"}";
  for (const CallSyntax& syntax : call_syntaxes()) {
    const AnswerParserOptions options = options_for(std::string(syntax.name), "qwen3");
    std::vector<size_t> cuts;
    for (size_t at = 1000; at < many.size(); at += 1000) cuts.push_back(at);
    EXPECT_EQ(parse(options, many, cuts).content, many) << syntax.name;
    (void)parse(options, markers);
    (void)parse(options, deep);
    EXPECT_EQ(parse(options, std::string(1 << 20, ' ')).content.size(), 1u << 20) << syntax.name;
    EXPECT_EQ(parse(options, bytes), parse(options, bytes, {1, 2, 5, 14, 16}));
    const std::string section(syntax.section_begin), begin(syntax.begin);
    (void)parse(options, section + begin + section + begin + "x" + std::string(5000, '{') + std::string(5000, '<'));
  }
}

TEST(AnswerParserTest, RandomPiecesOfMarkersKeepTheParsersPromises) {
  std::mt19937 random(11);
  const std::vector<Row> all = rows();
  for (int round = 0; round < 3000; ++round) {
    const std::string_view a = all[random() % all.size()].text, b = all[random() % all.size()].text;
    std::string input(4, static_cast<char>(random() % 256));
    for (char& c : input) c = static_cast<char>(random() % 256);
    for (int piece = 0; piece < 6; ++piece) {
      const std::string_view from = piece % 2 == 0 ? a : b;
      const size_t at = random() % from.size();
      input += from.substr(at, random() % 40);
      if (random() % 4 == 0) input += static_cast<char>(random() % 256);
    }
    fuzz::answer_parser(input);
  }
}

TEST(AnswerFormatTest, NamesOfOtherServersAreUnderstoodAndOthersAreRefused) {
  EXPECT_EQ((*choose_format("", "qwen3_xml", "qwen3")).calls->name, "qwen3_coder");
  EXPECT_EQ((*choose_format("", "none", "qwen3")).reasoning->end, "</think>");
  EXPECT_EQ((*choose_format("<tool_call>", "auto", "none")).calls->name, "hermes");
  EXPECT_THAT(std::string(choose_format("", "hermse", "auto").status().message()), HasSubstr("hermes"));
  EXPECT_FALSE(choose_format("", "auto", "x").ok());
}

// --- the published templates

namespace fs = std::filesystem;

struct Family {
  const char* file;
  const char* calls;      // "": none
  const char* reasoning;  // "": none
};

// Which families the templates of the shared data belong to.
constexpr Family kFamilies[] = {
    {"Apertus-8B-Instruct", "apertus", "apertus"},
    {"Bielik-11B-v3.0-Instruct", "hermes", "deepseek_r1"},
    {"Cohere2MoE", "cohere", "cohere"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "cohere", "cohere"},
    {"GLM-4.7-Flash", "glm47", "deepseek_r1"},
    {"GigaChat3.1-10B-A1.8B", "gigachat3", ""},
    {"Kimi-K2-Instruct", "kimi_k2", ""},
    {"Kimi-K3", "kimi_k3", "kimi_k3"},
    {"LFM2.5-Instruct", "lfm2", "deepseek_r1"},
    {"MiniMax-M1", "minimax", ""},
    {"MiniMax-M3", "minimax_m3", "minimax_m3"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "qwen3_coder", "deepseek_r1"},
    {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", ""},
    {"Qwen-QwQ-32B", "hermes", "deepseek_r1"},
    {"Qwen-Qwen3-0.6B", "hermes", "deepseek_r1"},
    {"Qwen3.5-4B", "qwen3_coder", "deepseek_r1"},
    {"StepFun3.5-Flash", "qwen3_coder", "deepseek_r1"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "deepseek_r1"},
    {"deepseek-ai-DeepSeek-V3.2", "deepseek_v32", "deepseek_r1"},
    {"deepseek-ai-DeepSeek-V4", "deepseek_v4", "deepseek_r1"},
    {"google-gemma-2-2b-it", "", ""},
    {"google-gemma-4-31B-it", "gemma4", "gemma4"},
    {"ibm-granite-granite-4.0", "hermes", ""},
    {"llama-cpp-deepseek-r1", "deepseek_v3", "deepseek_r1"},
    {"meetkai-functionary-medium-v3.1", "functionary", ""},
    {"meta-llama-Llama-3.1-8B-Instruct", "llama3_json", ""},
    {"meta-llama-Llama-3.3-70B-Instruct", "llama3_json", ""},
    {"mistralai-Ministral-3-14B-Reasoning-2512", "mistral", "mistral"},
    {"moonshotai-Kimi-K2", "kimi_k2", ""},
    {"openai-gpt-oss-120b", "openai", "openai_gptoss"},
    {"tencent-Hy3", "hy_v3", "hy_v3"},
    {"unsloth-mistral-Devstral-Small-2507", "mistral", ""},
};

std::string template_source(const Family& family) {
  return *read_file(shared_data("chat_templates") / (std::string(family.file) + ".jinja"), 1 << 20);
}

TEST(ChatTemplatesTest, EachPublishedTemplateGetsItsFamily) {
  if (!fs::exists(shared_data("chat_templates"))) GTEST_SKIP() << "shared data is not here";
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(shared_data("chat_templates"))) files += entry.path().extension() == ".jinja";
  EXPECT_EQ(files, std::size(kFamilies)) << "a template without a row";
  for (const Family& family : kFamilies) {
    const AnswerFormat format = detect_format(template_source(family));
    EXPECT_EQ(format.calls == nullptr ? "" : format.calls->name, family.calls) << family.file;
    EXPECT_EQ(format.reasoning == nullptr ? "" : format.reasoning->name, family.reasoning) << family.file;
  }
}

std::string after_question(const std::string& text) { return text.substr(text.rfind("probe_question") + 14); }

TEST(ChatTemplatesTest, TheTableOfTheDocsIsTrue) {
  const std::string docs = *read_file(std::string(SHOAL_SOURCE_DIR) + "/docs/TOOLS.md", 1 << 20);
  const auto cell = [](const char* name) { return name[0] == '\0' ? std::string("-") : std::string(name); };
  for (const Family& family : kFamilies) {
    EXPECT_THAT(docs, HasSubstr("\n| " + cell(family.file) + " | " + cell(family.calls) + " | " + cell(family.reasoning) + " |\n"));
  }
  for (const CallSyntax& syntax : call_syntaxes()) EXPECT_THAT(docs, HasSubstr(std::string(syntax.name)));
}

// What a template prints for an assistant's calls is read back as the same calls.
TEST(ChatTemplatesTest, CallsThatATemplatePrintsAreReadBack) {
  if (!fs::exists(shared_data("chat_templates"))) GTEST_SKIP() << "shared data is not here";
  size_t read = 0;
  const std::map<std::string, std::string> variables = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const OrderedJson tools = *parse_ordered_json(R"([{"type":"function","function":{"name":"get_weather","description":"Weather.","parameters":
      {"type":"object","properties":{"city":{"type":"string","description":"c"},"days":{"type":"integer","description":"d"},
       "exact":{"type":"boolean","description":"e"},"tags":{"type":"array","items":{"type":"string"},"description":"t"},
       "where":{"type":"object","description":"w","properties":{"lat":{"type":"number"}}}}}}}])");
  const OrderedJson arguments = *parse_ordered_json(R"({"city":"Bern \"<b>\"\n, x","days":3,"exact":true,"tags":["a","2"],"where":{"lat":1.5}})");
  for (const Family& family : kFamilies) {
    const std::string source = template_source(family);
    const auto chat_template = *ChatTemplate::parse(source);
    const TemplateTraits traits = probe_template([&](const OrderedJson& all) { return text_or_nothing(*chat_template, all); }, variables);
    const bool has_tools = family.calls[0] != '\0' && std::string_view(family.calls) != "deepseek_v3";  // those two describe none
    EXPECT_EQ(traits.tools, has_tools) << family.file;
    if (!traits.tool_calls) continue;
    AnswerParserOptions options{.format = detect_format(source)};
    options.tools = std::make_shared<ToolList>(ToolList{{"get_weather", tools[0]["function"]["parameters"]}});
    const OrderedJson call = {{"id", "call00001"}, {"type", "function"}, {"function", {{"name", "get_weather"}, {"arguments", arguments}}}};
    for (const size_t count : {1u, 2u}) {
      OrderedJson messages = {{{"role", "user"}, {"content", "probe_question"}}, {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", OrderedJson(count, call)}}};
      OrderedJson base = {{"messages", adapt_messages(messages, tools, traits, *options.format.calls)}, {"tools", tools},
                          {"add_generation_prompt", false}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
      const auto rendered = chat_template->render_ordered(base, {});
      if (!rendered.ok()) {  // templates that take one call a turn say so
        EXPECT_EQ(count, 2u) << family.file << " " << rendered.status();
        continue;
      }
      const std::string text = after_question(join(*rendered));
      base["messages"].erase(1);
      base["add_generation_prompt"] = true;
      const std::string header = after_question(join(*chat_template->render_ordered(base, {})));
      const Said said = parse(options, text.starts_with(header) ? text.substr(header.size()) : text);
      const bool one_only = std::string_view(family.calls) == "openai" || std::string_view(family.calls) == "gigachat3";
      ASSERT_EQ(said.calls.size(), one_only ? 1u : count) << family.file << " " << text;
      for (const auto& [name, json] : said.calls) {
        EXPECT_EQ(name, "get_weather");
        EXPECT_EQ(Json::parse(json), Json(arguments)) << family.file << " " << text;
      }
      ++read;
    }
  }
  EXPECT_GT(read, 50u);
}

}  // namespace
}  // namespace shoal
