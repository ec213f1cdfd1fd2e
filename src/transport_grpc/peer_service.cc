#include "transport_grpc/peer_service.h"

#include <deque>
#include <memory>
#include <utility>

namespace shoal {
namespace {

constexpr size_t kPartBytes = 1 << 20;

grpc::Status to_grpc(const Status& status) { return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())}; }

// Has the files as a whole and gives them out part by part. Its own owner until it is done.
class TextReactor : public grpc::ServerWriteReactor<peer::TextPart> {
 public:
  static TextReactor* begin(const PeerHandlers& handlers, const peer::TextRequest& request) {
    auto reactor = std::make_shared<TextReactor>();
    TextReactor* const self = reactor.get();
    self->self_ = std::move(reactor);
    self->read(handlers, request);
    self->next();
    return self;
  }
  void OnWriteDone(bool ok) override {
    parts_.pop_front();
    if (!ok) parts_.clear();
    next();
  }
  void OnDone() override { self_.reset(); }

 private:
  void read(const PeerHandlers& handlers, const peer::TextRequest& request) {
    if (!handlers.text) {
      end_ = to_grpc(not_found("this process has no models"));
      return;
    }
    end_ = to_grpc(handlers.text(request.model(), request.stamp(), [this](const std::string& file, const std::string& bytes) {
      for (size_t at = 0; at == 0 || at < bytes.size(); at += kPartBytes) {
        peer::TextPart& part = parts_.emplace_back();
        part.set_file(file);
        part.set_data(bytes.substr(at, kPartBytes));
      }
      return true;
    }));
  }
  void next() {
    if (parts_.empty()) Finish(end_);
    else StartWrite(&parts_.front());
  }

  std::shared_ptr<TextReactor> self_;
  std::deque<peer::TextPart> parts_;
  grpc::Status end_;
};

}  // namespace

grpc::ServerUnaryReactor* PeerService::Cards(grpc::CallbackServerContext* context, const peer::CardsRequest*, peer::CardsReply* reply) {
  if (host_.handlers().cards) reply->set_json(host_.handlers().cards());
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* PeerService::Operate(grpc::CallbackServerContext* context, const peer::OperateRequest* request, peer::OperateReply* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  host_.apart([this, reactor, verb = request->verb(), reply] {
    const auto& operate = host_.handlers().operate;
    const StatusOr<std::string> answer = operate ? operate(verb) : unimplemented("this process takes no '", verb, "'");
    if (answer.ok()) reply->set_json(*answer);
    reactor->Finish(to_grpc(answer.status()));
  });
  return reactor;
}

grpc::ServerWriteReactor<peer::TextPart>* PeerService::Text(grpc::CallbackServerContext*, const peer::TextRequest* request) {
  return TextReactor::begin(host_.handlers(), *request);
}

}  // namespace shoal
