// After a verdict on a group of NCCL: what its RAS says, as a witness for people.
#include <utility>

#include "agent/hang/nccl_ras.h"
#include "agent/hang/nccl_ras_child.h"
#include "agent/job/agent_loop.h"

namespace muster {
namespace {

// Longer than the child takes, unless it looks up a name for so long.
constexpr auto kRasLimit = std::chrono::seconds(5);

}  // namespace

// Of this node, which speaks for all of the job. Says what people can act on; gives `done` what is
// for the bundle.
void AgentLoop::ask_ras(std::function<void(std::string)> done) {
  if (lookup("NCCL_RAS_ENABLE") == "0")
    return done(hang::ras_silent("", "NCCL_RAS_ENABLE=0").member);
  std::string address = lookup("NCCL_RAS_ADDR");
  if (address.empty()) address = hang::kRasAddress;
  if (ras_.is_busy())
    return done(hang::ras_silent(address, "it is being asked for another verdict").member);
  HelperProcess::Question question{.arguments = {hang::kRasFlag, address},
                                   .limit = kRasLimit,
                                   .what = "ask NCCL's RAS",
                                   .late = "no answer within 5 s"};
  for (int local_rank = 0; local_rank < setup_.workers; ++local_rank) {
    const RankRing ring = read_ring(local_rank, 0);
    if (ring.state && ring.state->owner > 0)
      question.arguments.push_back(std::to_string(ring.state->owner));
  }
  ras_.ask(std::move(question), [this, address, done = std::move(done)](Result<std::string> text) {
    hang::RasWitness witness =
        text ? hang::decode_ras(address, *text) : hang::ras_silent(address, text.error().message);
    if (!witness.line.empty()) say("NCCL's RAS: " + witness.line);
    done(std::move(witness.member));
  });
}

}  // namespace muster
