#include "agent/job/meeting_facts.h"

#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>

#include "agent/meeting/pmi_child.h"
#include "agent/meeting/reachable.h"
#include "rendezvous/membership/job_token.h"
#include "rendezvous/net/interfaces.h"

namespace muster {

void MeetingFacts::find(const NodeFacts& node, Done done) {
  NodeFacts found = node;
  found.token = spec_.token.value_or("");
  if (!spec_.token_file || !is_coordinated(spec_)) return ask_launch(std::move(found), done);
  job_.on_disk([this, path = *spec_.token_file, found, done = std::move(done)] {
    boost::asio::post(io_,
                      [this, found, done, token = membership::read_token_file(path)]() mutable {
                        if (job_.is_ending()) return;
                        if (!token) return done(tl::unexpected<Error>(token.error()));
                        found.token = *token;
                        ask_launch(std::move(found), done);
                      });
  });
}

void MeetingFacts::ask_launch(NodeFacts node, const Done& done) {
  if (!spec_.ask_pmi) return done(std::move(node));
  const std::string reached = spec_.local_addr.value_or(reachable_text(read_interfaces()));
  ask_pmi(helper_, environment_, reached, kPmiPatience,
          [this, found = std::move(node), done](const Result<PmiAnswer>& answer) mutable {
            if (job_.is_ending()) return;
            if (!answer) return done(tl::unexpected<Error>(answer.error()));
            if (answer->rank != spec_.node_rank) {
              return done(fail(
                  ExitCode::rendezvous,
                  fmt::format("PMI says that this is rank {}, the variables say {}: is this a "
                              "launch within another one? Give --engine none and the flags about "
                              "nodes",
                              answer->rank, spec_.node_rank.value_or(0))));
            }
            found.pmi_host = answer->host;
            found.pmi_job = answer->job;
            if (spec_.id.empty()) found.run_id = answer->job;
            done(std::move(found));
          });
}

}  // namespace muster
