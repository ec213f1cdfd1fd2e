// Who a process is to the others of its cluster, and whom it believes.
#pragma once

#include <string>

namespace shoal {

// PEM texts. All three or none.
struct TlsIdentity {
  std::string certificate, key;  // its own
  std::string ca;                // of the authority that signs those of all processes
  bool given() const { return !certificate.empty(); }
};

}  // namespace shoal
