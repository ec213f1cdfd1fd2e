#include "apps/conversation.h"

#include <condition_variable>
#include <mutex>
#include <random>

#include "CLI/CLI.hpp"
#include "gateway/generation.h"
#include "gateway/openai_body.h"
#include "nlohmann/json.hpp"

namespace shoal {
namespace {

constexpr Duration kReadyWait = std::chrono::seconds(60);
constexpr Duration kLookForInterrupt = std::chrono::milliseconds(50);

// Of a consumer: rung by the router's thread, waited for by this one.
struct Waker {
  std::mutex mutex;
  std::condition_variable rung;
  bool ringing = false;
  void ring() {
    std::lock_guard lock(mutex);
    ringing = true;
    rung.notify_one();
  }
  void wait(Duration at_most) {
    std::unique_lock lock(mutex);
    rung.wait_for(lock, at_most, [&] { return ringing; });
    ringing = false;
  }
};

}  // namespace

void add_talk_flags(CLI::App& verb, TalkFlags& flags) {
  verb.add_option("model", flags.model, "Model folder, GGUF file, or name of a model in --models-dir")->required();
  verb.add_option("--models-dir", flags.models_dir, "Where names are looked up")->capture_default_str();
  verb.add_option("--system", flags.system, "System message");
  verb.add_option("--max-tokens", flags.max_tokens, "Longest answer in tokens");
  verb.add_option("--temperature", flags.temperature, "0 always takes the likeliest token")->check(CLI::Range(0.0, 2.0));
  verb.add_option("--seed", flags.seed, "The same seed gives the same answer");
  add_engine_flags(verb, flags.engine);
  add_log_flags(verb, flags.log, "warning");
}

StatusOr<std::unique_ptr<Conversation>> Conversation::start(const TalkFlags& flags) {
  RETURN_IF_ERROR(apply(flags.log));
  ASSIGN_OR_RETURN(const LoadOptions options, load_options(flags.engine));
  ASSIGN_OR_RETURN(FoundModel model, find_model(flags.model, flags.models_dir, options, flags.engine.max_model_len));
  std::unique_ptr<Conversation> self(new Conversation());
  self->flags_ = flags;
  std::vector<FoundModel> models;
  models.push_back(std::move(model));
  ASSIGN_OR_RETURN(self->cluster_, LocalCluster::start(flags.engine, std::move(models)));
  if (!self->cluster_->wait_ready(kReadyWait)) return unavailable("the node did not report within a minute");
  ASSIGN_OR_RETURN(self->text_, self->cluster_->catalog().text(*self->cluster_->catalog().models().front()));
  return self;
}

PrepareContext Conversation::context() const {
  const ModelRef model = cluster_->catalog().models().front();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::random_device chance;
  return {.model = model, .text = text_, .max_model_len = context_limit(*model, *cluster_->router().snapshot()),
          .fallback_seed = (static_cast<uint64_t>(chance()) << 32) ^ chance(),
          .now_unix_seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count()};
}

GenerationFields Conversation::fields() const {
  GenerationFields fields;
  fields.model = model_name();
  fields.max_tokens = flags_.max_tokens;
  fields.temperature = flags_.temperature;
  fields.seed = flags_.seed;
  return fields;
}

StatusOr<Answer> Conversation::chat(const Json& messages, const std::function<void(std::string_view)>& show,
                                    const std::function<bool()>& interrupted) {
  ChatRequest request;
  request.common = fields();
  request.prompt.messages = std::make_shared<OrderedJson>(messages);
  request.prompt.variables = std::make_shared<OrderedJson>(OrderedJson::object());
  request.parse_reasoning = false;  // a terminal shows all there is
  return generate(prepare_chat(request, context()), show, interrupted);
}

StatusOr<Answer> Conversation::complete(const std::string& prompt, const std::function<void(std::string_view)>& show,
                                        const std::function<bool()>& interrupted) {
  CompletionRequest request;
  request.common = fields();
  request.prompts.emplace_back(prompt);
  return generate(prepare_completion(request, context()), show, interrupted);
}

StatusOr<Answer> Conversation::generate(ApiResult<PreparedRequest> request,
                                        const std::function<void(std::string_view)>& show,
                                        const std::function<bool()>& interrupted) {
  if (!request.ok()) return invalid_argument(request.error().message);
  auto bell = std::make_shared<Waker>();
  auto started = Generation::start(std::move(*request), cluster_->router(), {}, [bell] { bell->ring(); });
  if (!started.ok()) return unavailable(started.error().message);
  Generation& generation = **started;
  Answer answer;
  while (true) {
    const Progress progress = generation.poll();
    for (const ChoiceUpdate& update : progress.updates) {
      answer.text += update.delta.text;
      show(update.delta.text);
    }
    if (progress.failure) return unavailable(progress.failure->message);
    if (progress.done) break;
    if (interrupted()) {
      answer.interrupted = true;
      break;
    }
    if (!progress.more) bell->wait(kLookForInterrupt);
  }
  generation.cancel();
  answer.tokens = generation.usage().completion_tokens;
  return answer;
}

}  // namespace shoal
