// The catalog as one caller sees it, and all that a request for one of its models is prepared with.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "gateway/admission.h"
#include "gateway/catalog.h"
#include "gateway/prepare.h"
#include "gateway/router_loop.h"

namespace shoal {

// All methods may be called from any thread.
class ModelAccess {
 public:
  // Everything referred to outlives this.
  ModelAccess(const Admission& admission, Catalog& catalog, RouterLoop& loop);

  std::vector<ModelRef> all(Caller caller) const;  // that the caller may use
  // By name or alias; an empty name means the only model there is. 404 lists what there is, 403: not with this key.
  ApiResult<ModelRef> find(const std::string& name, Caller caller) const;
  // The model with its text; its tokenizer is loaded at the first call, which may take a while.
  ApiResult<PrepareContext> open(const std::string& name, Caller caller);
  std::shared_ptr<const RouterSnapshot> nodes() const { return loop_.snapshot(); }  // what they last said

 private:
  std::vector<std::string> usable_names(Caller caller) const;  // of models, with their aliases

  const Admission& admission_;
  Catalog& catalog_;
  RouterLoop& loop_;
  GrammarCache grammars_;
  std::atomic<uint64_t> seeds_;  // for requests that name none
};

// Seconds since 1970.
int64_t unix_seconds();
// Bits that no other process is likely to have.
uint64_t random_bits();
// 24 hexadecimal digits that no other request of any process is likely to have.
std::string mint_id();

}  // namespace shoal
