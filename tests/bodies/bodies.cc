// bodies [--first N] [--count N]: request bodies from seeds against everything between the socket and the router. Each is
// made by hand of known and unknown fields with values of right and wrong types and ranges, then perhaps damaged. Every
// one must give a value or a 4xx that names what is wrong; a 5xx, a crash or an error without words is a failure.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "gateway/openai_request.h"
#include "gateway/prepare.h"
#include "gateway/test_support.h"

namespace shoal {
namespace {

constexpr const char* kKeys[] = {
    "model", "messages", "prompt", "stream", "stream_options", "n", "best_of", "max_tokens", "max_completion_tokens",
    "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "logit_bias", "logprobs",
    "top_logprobs", "presence_penalty", "frequency_penalty", "repetition_penalty", "ignore_eos", "echo", "tools",
    "tool_choice", "parallel_tool_calls", "response_format", "guided_json", "guided_regex", "guided_choice", "grammar",
    "structured_outputs", "json_schema", "chat_template_kwargs", "add_generation_prompt", "continue_final_message",
    "add_special_tokens", "skip_special_tokens", "include_stop_str_in_output", "return_tokens_as_token_ids", "priority",
    "tokens", "user", "store", "metadata", "functions", "suffix", "truncate_prompt_tokens", "reasoning_effort", "role",
    "content", "name", "type", "text", "function", "arguments", "parameters", "schema", "properties", "required", "items",
    "enum", "pattern", "tool_calls", "tool_call_id", "id", "image_url", "include_usage", "strict", "description"};
constexpr const char* kWords[] = {
    "\"user\"", "\"system\"", "\"assistant\"", "\"tool\"", "\"text\"", "\"function\"", "\"auto\"", "\"none\"",
    "\"required\"", "\"json_object\"", "\"json_schema\"", "\"object\"", "\"string\"", "\"array\"", "\"integer\"",
    "\"tiny\"", "\"\"", "\"a\"", "\"refuse me\"", "\"[a-z]+\"", "\"root ::= [a-z]+\"", "\"(((\"", "\"\\u0000\"",
    "\"\\ud800\"", "\"\xf0\x9f\x98\x80\"", "\"\xff\xfe\"", "\"</s><|im_end|>\"", "\"{}\"", "\"{\\\"a\\\":1}\""};
constexpr const char* kNumbers[] = {"0", "1", "-1", "2", "20", "128", "129", "0.5", "1e9", "1000000000", "1e400", "-0.0",
                                    "2147483648", "18446744073709551615", "18446744073709551616", "9007199254740993", "1e-9",
                                    "257", "258", "NaN", "Infinity", "01", "1."};

class Bodies {
 public:
  explicit Bodies(uint64_t seed) : rng_(seed) {}

  std::string next() {
    std::string body = rng_.below(50) == 0 ? value(0) : request();
    if (rng_.below(4) == 0) damage(body);
    return body;
  }

 private:
  template <typename T, size_t N>
  const T& pick(const T (&list)[N]) { return list[rng_.below(N)]; }

  // A request that would be right, with some fields added, replaced or lost.
  std::string request() {
    std::vector<std::string> fields;
    if (rng_.below(10) != 0) fields.push_back("\"model\":\"tiny\"");
    if (rng_.below(3) != 0) fields.push_back("\"messages\":" + (rng_.below(4) == 0 ? value(2) : messages()));
    if (rng_.below(3) == 0) fields.push_back("\"prompt\":" + (rng_.below(2) == 0 ? value(2) : std::string("\"hello\"")));
    if (rng_.below(6) == 0) fields.push_back("\"tokens\":[1,2," + std::string(pick(kNumbers)) + "]");
    for (uint64_t more = rng_.below(6); more > 0; --more) fields.push_back(absl::StrCat("\"", pick(kKeys), "\":", value(2)));
    std::string out = "{";
    for (const std::string& field : fields) absl::StrAppend(&out, out.size() > 1 ? "," : "", field);
    return out + "}";
  }

  std::string messages() {
    std::string out = "[";
    for (uint64_t left = 1 + rng_.below(3); left > 0; --left) {
      absl::StrAppend(&out, out.size() > 1 ? "," : "", R"({"role":)", rng_.below(8) == 0 ? value(1) : "\"user\"", R"(,"content":)",
                      rng_.below(4) == 0 ? value(2) : "\"hi\"");
      if (rng_.below(4) == 0) absl::StrAppend(&out, ",\"", pick(kKeys), "\":", value(2));
      out += "}";
    }
    return out + "]";
  }

  std::string value(int depth) {
    switch (rng_.below(depth >= 5 ? 5 : 8)) {
      case 0: return "null";
      case 1: return rng_.below(2) == 0 ? "true" : "false";
      case 2: return pick(kNumbers);
      case 3:
      case 4: return pick(kWords);
      case 5: {
        std::string out = "[";
        for (uint64_t left = rng_.below(4); left > 0; --left) absl::StrAppend(&out, out.size() > 1 ? "," : "", value(depth + 1));
        return out + "]";
      }
      case 6: {
        std::string out = "{";
        for (uint64_t left = rng_.below(4); left > 0; --left) {
          absl::StrAppend(&out, out.size() > 1 ? "," : "", "\"", pick(kKeys), "\":", value(depth + 1));
        }
        return out + "}";
      }
      default: return rng_.below(200) == 0 ? std::string(300, '[') : absl::StrCat("\"", std::string(rng_.below(40), 'x'), "\"");
    }
  }

  void damage(std::string& body) {
    for (uint64_t left = 1 + rng_.below(3); left > 0 && !body.empty(); --left) {
      const size_t at = rng_.below(body.size());
      switch (rng_.below(4)) {
        case 0: body[at] = static_cast<char>(rng_.below(256)); break;
        case 1: body.erase(at, 1 + rng_.below(8)); break;
        case 2: body.insert(at, body.substr(rng_.below(body.size()), rng_.below(16))); break;
        default: body.resize(at); break;
      }
    }
  }

  Rng rng_;
};

struct Tally {
  uint64_t values = 0;
  uint64_t refused = 0;
  uint64_t faults = 0;
};

template <typename T>
void count(const ApiResult<T>& result, uint64_t seed, const std::string& body, Tally& tally) {
  if (result.ok()) {
    ++tally.values;
    return;
  }
  const ApiError& error = result.error();
  ++tally.refused;
  if (error.http_status >= 400 && error.http_status < 500 && !error.message.empty() && error.code.has_value()) return;
  ++tally.faults;
  std::printf("FAULT bodies --first %llu --count 1: %d %s\n  %s\n", static_cast<unsigned long long>(seed), error.http_status,
              error.message.c_str(), body.substr(0, 2000).c_str());
}

void check(uint64_t seed, const PrepareContext& context, Tally& tally) {
  const std::string body = Bodies(seed).next();
  const RequestLimits limits;
  if (auto chat = parse_chat_request(body, limits); chat.ok()) {
    count(prepare_chat(*chat, context), seed, body, tally);
  } else {
    count(chat, seed, body, tally);
  }
  if (auto text = parse_completion_request(body, limits); text.ok()) {
    count(prepare_completion(*text, context), seed, body, tally);
  } else {
    count(text, seed, body, tally);
  }
  count(parse_tokenize_request(body, limits), seed, body, tally);
  count(parse_detokenize_request(body), seed, body, tally);
}

int run(uint64_t first, uint64_t bodies) {
  const auto model = std::make_shared<const ModelEntry>(test::World::entry(0, "tiny"));
  const PrepareContext context{.model = model, .text = *test::World::load_text(*model), .max_model_len = 200};
  Tally tally;
  for (uint64_t seed = first; seed < first + bodies; ++seed) check(seed, context, tally);
  std::printf("%llu bodies, 4 readings each: %llu requests, %llu refused with a 4xx, %llu faults\n",
              static_cast<unsigned long long>(bodies), static_cast<unsigned long long>(tally.values),
              static_cast<unsigned long long>(tally.refused), static_cast<unsigned long long>(tally.faults));
  return tally.faults == 0 && tally.values > 0 && tally.refused > 0 ? 0 : 1;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  uint64_t first = 1, count = 20'000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const bool ok = absl::SimpleAtoi(argv[i + 1], flag == "--first" ? &first : &count);
    if (!ok || (flag != "--first" && flag != "--count")) {
      std::fprintf(stderr, "usage: bodies [--first N] [--count N]\n");
      return 2;
    }
  }
  return shoal::run(first, count);
}
