// SPDX-FileCopyrightText: 2026 The omni authors
// SPDX-License-Identifier: BSL-1.0

#include <mpi.h>

#include <omni/engines.hpp>
#include <omni/omni.hpp>
#include <string_view>
#include <vector>

struct mine {
  static constexpr std::string_view name = "mine";
  struct engine {
    engine(const mine&, const omni::call&, omni::any_transport&, omni::any_mailbox&) {}
    void start() {}
    bool progress() { return true; }
#ifdef OMNI_CONTROL
    void wait() {}
#endif
    [[nodiscard]] bool done() const { return true; }
    void finish(omni::report&) const {}
  };
};

void reduce(std::vector<float>& data) {
  omni::allreduce(MPI_COMM_WORLD, data, mine{});  // expect: "omni: the topology's engine lacks"
}
