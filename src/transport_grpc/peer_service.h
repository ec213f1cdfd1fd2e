// The server's side of peer.proto.
#pragma once

#include <functional>

#include "transport_grpc/grpc_network.h"
#include "transport_grpc/link.h"

namespace shoal {

// Whose calls they are. Outlives the service.
class PeerHost {
 public:
  virtual ~PeerHost() = default;
  virtual grpc::ServerBidiReactor<peer::Frame, peer::Frame>* begin_answer(grpc::CallbackServerContext* context) = 0;
  virtual const PeerHandlers& handlers() const = 0;
  // Runs it on a thread where it may take its time, after what came before.
  virtual void apart(std::function<void()> work) = 0;
};

class PeerService : public peer::Peer::CallbackService {
 public:
  explicit PeerService(PeerHost& host) : host_(host) {}

  grpc::ServerBidiReactor<peer::Frame, peer::Frame>* Link(grpc::CallbackServerContext* context) override { return host_.begin_answer(context); }
  grpc::ServerUnaryReactor* Cards(grpc::CallbackServerContext* context, const peer::CardsRequest* request, peer::CardsReply* reply) override;
  grpc::ServerUnaryReactor* Operate(grpc::CallbackServerContext* context, const peer::OperateRequest* request, peer::OperateReply* reply) override;
  grpc::ServerWriteReactor<peer::TextPart>* Text(grpc::CallbackServerContext* context, const peer::TextRequest* request) override;

 private:
  PeerHost& host_;
};

}  // namespace shoal
