// What a thread does meanwhile that waits for an epoch to be made, which may take seconds: nothing, unless somebody who
// embeds the core says so (the bindings let Ctrl-C through).
#pragma once

#include <atomic>

namespace fastshard {

// Called every 50 ms or so, by the thread that waits. May throw, which ends the wait.
inline std::atomic<void (*)()> while_waiting{nullptr};

}  // namespace fastshard
