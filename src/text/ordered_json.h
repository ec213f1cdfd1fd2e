// JSON whose objects keep the order of their keys: templates print tools in the order in which the client wrote them.
#pragma once

#include "base/json.h"
